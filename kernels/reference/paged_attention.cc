#include "kernels/paged_attention.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/ops_avx2.h"
#include "kernels/half.h"
#include "kernels/math.h"

namespace octavo::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Online-softmax state of one (row, query head) over some keys.
struct Partial {
  float max = kMinusInfinity;
  float sum = 0;
  float out[256] = {};
};

float Widen(KvElement element, uint16_t x) {
  return element == KvElement::kF16 ? F16ToF32(x) : Bf16ToF32(x);
}

float Dot(const float* q, const uint16_t* k, KvElement element, int64_t head_dim) {
  float lanes[16] = {};
  for (int64_t d = 0; d < head_dim; ++d) {
    lanes[d % 16] = Fma(q[d], Widen(element, k[d]), lanes[d % 16]);
  }
  return SumOf16(lanes);
}

// The slot of one position of a sequence, for one head.
struct Slots {
  const KvPages& pages;
  const uint32_t* table;
  int64_t kv_head;

  const uint16_t* Key(int64_t position) const {
    return pages.Keys(table[position / pages.block_size], kv_head) +
           position % pages.block_size * pages.head_dim;
  }
  const uint16_t* Value(int64_t position) const {
    return pages.Values(table[position / pages.block_size], kv_head) +
           position % pages.block_size * pages.head_dim;
  }
};

Partial AttendSplit(const float* q, float scale, const Slots& slots, int64_t begin, int64_t end) {
  const int64_t head_dim = slots.pages.head_dim;
  const KvElement element = slots.pages.element;
  Partial state;
  float sums[16] = {};
  for (int64_t tile = begin; tile < end; tile += kAttentionTile) {
    const int64_t count = std::min(kAttentionTile, end - tile);
    float scores[kAttentionTile];
    float max = state.max;
    for (int64_t j = 0; j < count; ++j) {
      scores[j] = Dot(q, slots.Key(tile + j), element, head_dim) * scale;
      max = Max(scores[j], max);
    }
    const float rescale = Exp(state.max - max);
    for (int64_t d = 0; d < head_dim; ++d) state.out[d] = state.out[d] * rescale;
    for (int64_t j = 0; j < kAttentionTile; ++j) {
      const float weight = j < count ? Exp(scores[j] - max) : 0.0f;
      sums[j] = Fma(sums[j], rescale, weight);
      if (j >= count) continue;
      const uint16_t* value = slots.Value(tile + j);
      for (int64_t d = 0; d < head_dim; ++d) {
        state.out[d] = Fma(weight, Widen(element, value[d]), state.out[d]);
      }
    }
    state.max = max;
  }
  state.sum = SumOf16(sums);
  return state;
}

// The one function that joins partials; `right` covers the keys after those of `left`.
void Merge(float* left_max, float* left_sum, float* left_out, float right_max, float right_sum,
           const float* right_out, int64_t head_dim) {
  const float max = Max(right_max, *left_max);
  const float a = Exp(*left_max - max);
  const float b = Exp(right_max - max);
  *left_sum = Fma(*left_sum, a, right_sum * b);
  for (int64_t d = 0; d < head_dim; ++d) left_out[d] = Fma(left_out[d], a, right_out[d] * b);
  *left_max = max;
}

void WriteOutput(const float* out, float sum, int64_t head_dim, float* destination) {
  const float inverse = 1.0f / sum;
  for (int64_t d = 0; d < head_dim; ++d) destination[d] = out[d] * inverse;
}

// A slot of scratch holds, for each query head, out[head_dim], max, sum and padding.
float* ScratchOf(const PagedAttentionArgs& args, int64_t slot, int64_t query_head) {
  return args.scratch + (slot * args.query_head_count + query_head) * (args.pages.head_dim + 16);
}

void AttendVector(const PagedAttentionArgs& args, const AttentionItem& item, int64_t row,
                  int64_t query_head, const Slots& slots) {
  const int64_t head_dim = args.pages.head_dim;
  const int64_t key_count = args.rows.positions[row] + 1;
  const float* q = args.q + row * args.q_stride + query_head * head_dim;
  Partial total;
  for (int64_t split = item.first_split; split < item.first_split + item.split_count; ++split) {
    const int64_t begin = split * kAttentionSplit;
    if (begin >= key_count) break;
    const int64_t end = std::min(begin + kAttentionSplit, key_count);
    const Partial partial = AttendSplit(q, args.scale, slots, begin, end);
    if (item.first_partial != AttentionItem::kWritesOutput) {
      const int64_t slot =
          item.first_partial + (split - item.first_split) * item.row_count + (row - item.first_row);
      float* saved = ScratchOf(args, slot, query_head);
      std::copy_n(partial.out, head_dim, saved);
      saved[head_dim] = partial.max;
      saved[head_dim + 1] = partial.sum;
    } else if (split == item.first_split) {
      total = partial;
    } else {
      Merge(&total.max, &total.sum, total.out, partial.max, partial.sum, partial.out, head_dim);
    }
  }
  if (item.first_partial == AttentionItem::kWritesOutput) {
    WriteOutput(total.out, total.sum, head_dim,
                args.out + (row * args.query_head_count + query_head) * head_dim);
  }
}

void PagedAttentionScalar(const PagedAttentionArgs& args, WorkRange items) {
  const int64_t group = args.query_head_count / args.pages.kv_head_count;
  for (int64_t index = items.begin; index < items.end; ++index) {
    const AttentionItem& item = args.items[index / args.pages.kv_head_count];
    const int64_t kv_head = index % args.pages.kv_head_count;
    const int32_t sequence = args.rows.sequences[item.first_row];
    const Slots slots{args.pages, args.rows.block_tables + args.rows.table_offsets[sequence],
                      kv_head};
    for (int64_t row = item.first_row; row < item.first_row + item.row_count; ++row) {
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        AttendVector(args, item, row, head, slots);
      }
    }
  }
}

void MergeAttentionScalar(const PagedAttentionArgs& args, WorkRange merges) {
  const int64_t head_dim = args.pages.head_dim;
  for (int64_t index = merges.begin; index < merges.end; ++index) {
    const AttentionMerge& merge = args.merges[index];
    for (int64_t head = 0; head < args.query_head_count; ++head) {
      const float* first = ScratchOf(args, merge.first_partial, head);
      float out[256];
      std::copy_n(first, head_dim, out);
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

}  // namespace

OpFunction<PagedAttentionArgs> PagedAttentionFor(Isa isa) {
  return isa == Isa::kAvx2 ? PagedAttentionAvx2 : PagedAttentionScalar;
}

OpFunction<PagedAttentionArgs> MergeAttentionFor(Isa isa) {
  return isa == Isa::kAvx2 ? MergeAttentionAvx2 : MergeAttentionScalar;
}

}  // namespace octavo::kernels
