#include <immintrin.h>

#include "kernels/cpu/attention_tile_avx2.h"
#include "kernels/cpu/ops_avx2.h"

// A tile of 16 keys and values is widened to fp32 once and then met by every vector of the item, a
// vector being one query head of one row. If the vectors are few, as in the decode of most models,
// they read the page itself and widen on the way.

namespace octavo::kernels {
namespace {

// Up to so many vectors it is cheaper to widen a key or value for each group of them than to store
// it.
constexpr int64_t kFewVectors = 4;

struct ItemView {
  const PagedAttentionArgs& args;
  const AttentionItem& item;
  int64_t kv_head;
  int64_t group;         // query heads per KV head
  int64_t vector_count;  // row_count * group: vector = row * group + head of the group
  int64_t first_position;
  const uint32_t* table;

  const float* Query(int64_t vector) const {
    const int64_t row = item.first_row + vector / group;
    const int64_t head = kv_head * group + vector % group;
    return args.q + row * args.q_stride + head * args.pages.head_dim;
  }
  int64_t Position(int64_t vector) const { return first_position + vector / group; }
};

template <KvElement kElement>
void WidenSlots(const uint16_t* source, int64_t element_count, float* destination) {
  for (int64_t i = 0; i < element_count; i += 16) {
    _mm256_store_ps(destination + i, Widen8<kElement>(source + i));
    _mm256_store_ps(destination + i + 8, Widen8<kElement>(source + i + 8));
  }
}

void Prefetch(const uint16_t* source, int64_t element_count) {
  for (int64_t i = 0; i < element_count; i += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(source + i), _MM_HINT_T0);
  }
}

// Keys and values of positions [begin, begin + count), page by page.
template <KvElement kElement>
void WidenTile(const ItemView& view, int64_t begin, int64_t count, AttentionWorkspace* work) {
  const KvPages& pages = view.args.pages;
  const int64_t head_dim = pages.head_dim;
  for (int64_t j = 0; j < count;) {
    const int64_t block = view.table[(begin + j) / pages.block_size];
    const int64_t offset = (begin + j) % pages.block_size;
    const int64_t run = Min(pages.block_size - offset, count - j);
    const uint16_t* keys = pages.Keys(block, view.kv_head) + offset * head_dim;
    const uint16_t* values = pages.Values(block, view.kv_head) + offset * head_dim;
    WidenSlots<kElement>(keys, run * head_dim, work->keys + j * head_dim);
    WidenSlots<kElement>(values, run * head_dim, work->values + j * head_dim);
    j += run;
  }
}

// Starts the loads of the tile at `begin`, as far as its first page goes.
void PrefetchTile(const ItemView& view, int64_t begin, int64_t count) {
  const KvPages& pages = view.args.pages;
  const int64_t block = view.table[begin / pages.block_size];
  const int64_t offset = begin % pages.block_size;
  const int64_t elements = Min(pages.block_size - offset, count) * pages.head_dim;
  Prefetch(pages.Keys(block, view.kv_head) + offset * pages.head_dim, elements);
  Prefetch(pages.Values(block, view.kv_head) + offset * pages.head_dim, elements);
}

template <int kCount, typename Slots>
void ScoreVectors(const ItemView& view, int64_t vector, int64_t tile, int64_t key_count,
                  const typename Slots::Element* keys, AttentionWorkspace* work) {
  const int64_t head_dim = view.args.pages.head_dim;
  const float* queries[kCount];
  for (int v = 0; v < kCount; ++v) queries[v] = view.Query(vector + v);
  const __m256 scale = _mm256_set1_ps(view.args.scale);
  __m256 low[kCount];
  __m256 high[kCount];
  DotEight<kCount, Slots>(queries, keys, head_dim, low);
  if (key_count > 8) {
    DotEight<kCount, Slots>(queries, keys + 8 * head_dim, head_dim, high);
  } else {
    for (int v = 0; v < kCount; ++v) high[v] = _mm256_setzero_ps();  // masked by the caller's count
  }
  for (int v = 0; v < kCount; ++v) {
    const int64_t visible = Min(view.Position(vector + v) - tile + 1, kAttentionTile);
    UpdateSoftmax(_mm256_mul_ps(low[v], scale), _mm256_mul_ps(high[v], scale), visible, vector + v,
                  work);
  }
}

// How many of `rest` vectors to take at a time: threes, but two twos rather than three and one.
int64_t NextCount(int64_t rest) { return rest == 4 || rest == 2 ? 2 : Min(rest, 3); }

template <typename Slots>
void ScoreAll(const ItemView& view, int64_t first, int64_t tile, int64_t key_count,
              const typename Slots::Element* keys, AttentionWorkspace* work) {
  for (int64_t vector = first; vector < view.vector_count;) {
    const int64_t count = NextCount(view.vector_count - vector);
    if (count == 3) {
      ScoreVectors<3, Slots>(view, vector, tile, key_count, keys, work);
    } else if (count == 2) {
      ScoreVectors<2, Slots>(view, vector, tile, key_count, keys, work);
    } else {
      ScoreVectors<1, Slots>(view, vector, tile, key_count, keys, work);
    }
    vector += count;
  }
}

// The vectors [begin, end) see the same number of keys.
template <typename Slots>
void AddValuesOf(int64_t begin, int64_t end, const typename Slots::Element* values,
                 int64_t head_dim, int64_t visible, AttentionWorkspace* work) {
  for (int64_t vector = begin; vector < end;) {
    const int64_t count = NextCount(end - vector);
    if (count == 3) {
      AddValues<3, Slots>(values, head_dim, visible, vector, work);
    } else if (count == 2) {
      AddValues<2, Slots>(values, head_dim, visible, vector, work);
    } else {
      AddValues<1, Slots>(values, head_dim, visible, vector, work);
    }
    vector += count;
  }
}

// The keys of one tile, of which there are `key_count`, for all vectors that see any.
template <typename Slots>
void AttendTile(const ItemView& view, int64_t tile, int64_t key_count,
                const typename Slots::Element* keys, const typename Slots::Element* values,
                AttentionWorkspace* work) {
  const int64_t head_dim = view.args.pages.head_dim;
  const int64_t hidden_rows = tile > view.first_position ? tile - view.first_position : 0;
  int64_t vector = hidden_rows * view.group;
  ScoreAll<Slots>(view, vector, tile, key_count, keys, work);
  // Rows on the diagonal see a part of the tile each; those below it see all.
  while (vector < view.vector_count && view.Position(vector) < tile + kAttentionTile - 1) {
    const int64_t visible = view.Position(vector) - tile + 1;
    AddValuesOf<Slots>(vector, vector + view.group, values, head_dim, visible, work);
    vector += view.group;
  }
  AddValuesOf<Slots>(vector, view.vector_count, values, head_dim, kAttentionTile, work);
}

// Keys [begin, end) of one split, from an empty state. Vectors before the one returned see none of
// them.
template <KvElement kElement>
int64_t AttendSplit(const ItemView& view, int64_t begin, int64_t end, AttentionWorkspace* work) {
  const KvPages& pages = view.args.pages;
  const int64_t head_dim = pages.head_dim;
  const int64_t hidden_rows = begin > view.first_position ? begin - view.first_position : 0;
  const int64_t first = hidden_rows * view.group;
  for (int64_t vector = first; vector < view.vector_count; ++vector) {
    work->max[vector] = kMinusInfinity;
  }
  const __m256 zero = _mm256_setzero_ps();
  for (int64_t i = first * kAttentionTile; i < view.vector_count * kAttentionTile; i += 8) {
    _mm256_store_ps(work->sums + i, zero);
  }
  for (int64_t i = first * head_dim; i < view.vector_count * head_dim; i += 8) {
    _mm256_store_ps(work->out + i, zero);
  }
  for (int64_t tile = begin; tile < end; tile += kAttentionTile) {
    const int64_t key_count = Min(kAttentionTile, end - tile);
    const int64_t next = tile + kAttentionTile;
    if (next < end) PrefetchTile(view, next, Min(kAttentionTile, end - next));
    const int64_t offset = tile % pages.block_size;
    if (view.vector_count <= kFewVectors && offset + kAttentionTile <= pages.block_size) {
      // Slots past key_count may be read, and hold anything, but are in the page and masked.
      const int64_t block = view.table[tile / pages.block_size];
      AttendTile<CacheSlots<kElement>>(view, tile, key_count,
                                       pages.Keys(block, view.kv_head) + offset * head_dim,
                                       pages.Values(block, view.kv_head) + offset * head_dim, work);
    } else {
      WidenTile<kElement>(view, tile, key_count, work);
      AttendTile<WidenedSlots>(view, tile, key_count, work->keys, work->values, work);
    }
  }
  return first;
}

// The one function that joins partials; `right` covers the keys after those of `left`.
void Merge(float* left_max, float* left_sum, float* left_out, float right_max, float right_sum,
           const float* right_out, int64_t head_dim) {
  const float max = Max(right_max, *left_max);
  const float a = Exp(*left_max - max);
  const float b = Exp(right_max - max);
  *left_sum = Fma(*left_sum, a, right_sum * b);
  const __m256 a8 = _mm256_set1_ps(a);
  const __m256 b8 = _mm256_set1_ps(b);
  for (int64_t d = 0; d < head_dim; d += 8) {
    const __m256 right = _mm256_mul_ps(_mm256_loadu_ps(right_out + d), b8);
    _mm256_storeu_ps(left_out + d, _mm256_fmadd_ps(_mm256_loadu_ps(left_out + d), a8, right));
  }
  *left_max = max;
}

void CopyFloats(const float* source, int64_t count, float* destination) {
  for (int64_t i = 0; i < count; i += 8) {
    _mm256_storeu_ps(destination + i, _mm256_loadu_ps(source + i));
  }
}

void WriteOutput(const float* out, float sum, int64_t head_dim, float* destination) {
  const __m256 inverse = _mm256_set1_ps(1.0f / sum);
  for (int64_t d = 0; d < head_dim; d += 8) {
    _mm256_storeu_ps(destination + d, _mm256_mul_ps(_mm256_loadu_ps(out + d), inverse));
  }
}

// A slot of scratch holds, for each query head, out[head_dim], max, sum and padding.
float* ScratchOf(const PagedAttentionArgs& args, int64_t slot, int64_t query_head) {
  return args.scratch + (slot * args.query_head_count + query_head) * (args.pages.head_dim + 16);
}

float SumOfLanes(const AttentionWorkspace& work, int64_t vector) {
  const float* lanes = work.sums + vector * kAttentionTile;
  return SumOf16(_mm256_load_ps(lanes), _mm256_load_ps(lanes + 8));
}

void SavePartials(const ItemView& view, int64_t split, int64_t first,
                  const AttentionWorkspace& work) {
  const AttentionItem& item = view.item;
  const int64_t head_dim = view.args.pages.head_dim;
  for (int64_t vector = first; vector < view.vector_count; ++vector) {
    const int64_t slot =
        item.first_partial + (split - item.first_split) * item.row_count + vector / view.group;
    float* saved = ScratchOf(view.args, slot, view.kv_head * view.group + vector % view.group);
    CopyFloats(work.out + vector * head_dim, head_dim, saved);
    saved[head_dim] = work.max[vector];
    saved[head_dim + 1] = SumOfLanes(work, vector);
  }
}

void MergePartials(const ItemView& view, int64_t split, int64_t first, AttentionWorkspace* work) {
  const int64_t head_dim = view.args.pages.head_dim;
  for (int64_t vector = first; vector < view.vector_count; ++vector) {
    float* total = work->total + vector * head_dim;
    const float* out = work->out + vector * head_dim;
    const float sum = SumOfLanes(*work, vector);
    if (split == view.item.first_split) {
      CopyFloats(out, head_dim, total);
      work->total_max[vector] = work->max[vector];
      work->total_sum[vector] = sum;
    } else {
      Merge(&work->total_max[vector], &work->total_sum[vector], total, work->max[vector], sum, out,
            head_dim);
    }
  }
}

template <KvElement kElement>
void AttendItem(const PagedAttentionArgs& args, const AttentionItem& item, int64_t kv_head) {
  const int64_t group = args.query_head_count / args.pages.kv_head_count;
  const int32_t sequence = args.rows.sequences[item.first_row];
  const ItemView view{.args = args,
                      .item = item,
                      .kv_head = kv_head,
                      .group = group,
                      .vector_count = item.row_count * group,
                      .first_position = args.rows.positions[item.first_row],
                      .table = args.rows.block_tables + args.rows.table_offsets[sequence]};
  const int64_t key_count = view.first_position + item.row_count;
  AttentionWorkspace work;
  for (int64_t split = item.first_split; split < item.first_split + item.split_count; ++split) {
    const int64_t begin = split * kAttentionSplit;
    const int64_t first =
        AttendSplit<kElement>(view, begin, Min(begin + kAttentionSplit, key_count), &work);
    if (item.first_partial == AttentionItem::kWritesOutput) {
      MergePartials(view, split, first, &work);
    } else {
      SavePartials(view, split, first, work);
    }
  }
  if (item.first_partial != AttentionItem::kWritesOutput) return;
  const int64_t head_dim = args.pages.head_dim;
  for (int64_t vector = 0; vector < view.vector_count; ++vector) {
    const int64_t row = item.first_row + vector / group;
    const int64_t head = kv_head * group + vector % group;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): an item has at least one split.
    WriteOutput(work.total + vector * head_dim, work.total_sum[vector], head_dim,
                args.out + (row * args.query_head_count + head) * head_dim);
  }
}

}  // namespace

void PagedAttentionAvx2(const PagedAttentionArgs& args, WorkRange items) {
  const auto attend = args.pages.element == KvElement::kF16 ? AttendItem<KvElement::kF16>
                                                            : AttendItem<KvElement::kBF16>;
  for (int64_t index = items.begin; index < items.end; ++index) {
    attend(args, args.items[index / args.pages.kv_head_count], index % args.pages.kv_head_count);
  }
}

void MergeAttentionAvx2(const PagedAttentionArgs& args, WorkRange merges) {
  const int64_t head_dim = args.pages.head_dim;
  for (int64_t index = merges.begin; index < merges.end; ++index) {
    const AttentionMerge& merge = args.merges[index];
    for (int64_t head = 0; head < args.query_head_count; ++head) {
      const float* first = ScratchOf(args, merge.first_partial, head);
      alignas(32) float out[kMaxHeadDim];
      CopyFloats(first, head_dim, out);
      float max = first[head_dim];
      float sum = first[head_dim + 1];
      for (int64_t i = 1; i < merge.partial_count; ++i) {
        const float* next = ScratchOf(args, merge.first_partial + i * merge.partial_stride, head);
        Merge(&max, &sum, out, next[head_dim], next[head_dim + 1], next, head_dim);
      }
      WriteOutput(out, sum, head_dim,
                  args.out + (merge.row * args.query_head_count + head) * head_dim);
    }
  }
}

}  // namespace octavo::kernels
