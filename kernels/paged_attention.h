#pragma once

// Causal attention of token rows over the paged KV cache, grouped-query heads included, in one
// order of operations for prefill, chunked prefill and decode. Online softmax after Milakov and
// Gimelshein (arXiv 1805.02867); splits as in FlashDecoding.
//
// The value of (row at position p, query head h), all operations IEEE fp32, exp of kernels/math.h:
// 1. Keys 0..p are cut at absolute multiples of 256 into splits, and each split at absolute
//    multiples of 16 into tiles. Pages play no part, so block sizes do not either.
// 2. score[j] = dot(q, k[j]) * scale. The dot product has 16 virtual lanes over head_dim: lane i is
//    the fma chain over d = i, i + 16, ... from +0; lanes are added by the halving tree of
//    kernels/math.h.
// 3. In a split, from m = -inf, l[0..15] = +0, o[d] = +0, tile by tile:
//      m'   = max(m, scores of the tile's keys <= p)
//      a    = exp(m - m')
//      e[j] = exp(score[j] - m'), and 0 for keys > p
//      l[j] = fma(l[j], a, e[j]) for the 16 keys of the tile
//      o[d] = o[d] * a, then fma(e[j], v[j][d], o[d]) for the keys j <= p in order
//    At its end l = the 16 lanes added by the halving tree: (m, l, o) is the split's partial.
// 4. Partials are merged from the left in split order:
//      m = max(m1, m2);  a = exp(m1 - m);  b = exp(m2 - m)
//      l = fma(l1, a, l2 * b);  o[d] = fma(o1[d], a, o2[d] * b)
// 5. out[d] = o[d] * (1 / l).
// A NaN in q, K or V makes the rows that see it NaN; so does an infinity, unless it only lowers a
// score to -inf. No other row is touched.
//
// Who computes what: PlanPagedAttention groups rows of one sequence at consecutive positions into
// tiles of rows, so that a key or value is read and widened once for all of them and for all query
// heads of its group. A tile either walks its splits itself, merging as it goes, or, when there
// would be too few items to share (a long decode), leaves each split's partial in scratch for
// MergeAttention. Every choice here gives the same bits.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/isa.h"
#include "kernels/kv_pages.h"
#include "kernels/work.h"

namespace octavo::kernels {

inline constexpr int64_t kAttentionSplit = 256;       // keys
inline constexpr int64_t kAttentionTile = 16;         // keys
inline constexpr int64_t kMaxAttentionGroup = 16;     // query heads per KV head
inline constexpr int64_t kAttentionTileVectors = 32;  // (row, head of the group) pairs of an item

// Some rows of one sequence against some of its splits.
struct AttentionItem {
  static constexpr int64_t kWritesOutput = -1;

  int32_t first_row = 0;
  int32_t row_count = 0;  // consecutive rows, consecutive positions
  int32_t first_split = 0;
  int32_t split_count = 0;
  int64_t first_partial = kWritesOutput;  // or the slot of partial (first_split, first_row): slot
                                          // first_partial + split * row_count + row
};

// One row whose partials lie in scratch.
struct AttentionMerge {
  int32_t row = 0;
  int32_t partial_count = 0;  // splits 0, 1, ...
  int64_t first_partial = 0;
  int64_t partial_stride = 0;  // slots from one split to the next
};

// How a step's attention falls into items; the same for all its layers. A plan may be filled again,
// keeping its memory.
struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<AttentionMerge> merges;
  int64_t partial_count = 0;  // slots in scratch
};

struct AttentionShape {
  int64_t query_head_count = 0;  // a multiple of kv_head_count, at most kMaxAttentionGroup times it
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
  int64_t thread_count = 1;  // who will share the work: a hint, without effect on the bits
};

void PlanPagedAttention(const AttentionShape& shape, const KvRows& rows, AttentionPlan* plan);

// Floats of scratch that `plan` needs: partial_count slots of [query_head_count][head_dim + 16].
int64_t AttentionScratchFloats(const AttentionShape& shape, const AttentionPlan& plan);

struct PagedAttentionArgs {
  const float* q = nullptr;  // [rows.row_count, query_head_count, head_dim], turned by Rope
  int64_t q_stride = 0;      // floats from one row of q to the next
  float* out = nullptr;      // [rows.row_count, query_head_count, head_dim], dense
  int64_t query_head_count = 0;
  float scale = 0;  // usually 1 / sqrt(head_dim)
  KvRows rows;
  KvPages pages;  // of this layer; the slots of every position up to the rows' own are written
  const AttentionItem* items = nullptr;  // [item_count], of the plan of `rows`
  int64_t item_count = 0;
  const AttentionMerge* merges = nullptr;  // [merge_count]
  int64_t merge_count = 0;
  float* scratch = nullptr;  // AttentionScratchFloats floats, from PagedAttention to MergeAttention
};

// Work items are (item, KV head): head within item.
inline int64_t PagedAttentionWorkCount(const PagedAttentionArgs& args) {
  return args.item_count * args.pages.kv_head_count;
}
OpFunction<PagedAttentionArgs> PagedAttentionFor(Isa isa);

// Runs after all of PagedAttention, on the same arguments. Work items are merges; often there are
// none.
inline int64_t MergeAttentionWorkCount(const PagedAttentionArgs& args) { return args.merge_count; }
OpFunction<PagedAttentionArgs> MergeAttentionFor(Isa isa);

}  // namespace octavo::kernels
