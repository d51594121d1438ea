#include "kernels/rope.h"

#include "kernels/cpu/ops_avx2.h"
#include "kernels/half.h"
#include "kernels/math.h"

namespace octavo::kernels {
namespace {

void Turn(const RopeArgs& args, const float* cosine, const float* sine, const float* x, float* y) {
  const int64_t pairs = args.rope_dim / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const bool interleaved = args.style == RopeStyle::kInterleaved;
    const int64_t first = interleaved ? 2 * i : i;
    const int64_t second = interleaved ? 2 * i + 1 : i + pairs;
    const float x0 = x[first];
    const float x1 = x[second];
    y[first] = Fma(x0, cosine[i], -(x1 * sine[i]));
    y[second] = Fma(x1, cosine[i], x0 * sine[i]);
  }
}

uint16_t Narrow(KvElement element, float x) {
  return element == KvElement::kF16 ? F32ToF16(x) : F32ToBf16(x);
}

void RopeScalar(const RopeArgs& args, WorkRange rows) {
  const KvPages& pages = args.pages;
  const int64_t head_dim = pages.head_dim;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t position = args.rows.positions[row];
    const float* cosine = args.cosine + position * (args.rope_dim / 2);
    const float* sine = args.sine + position * (args.rope_dim / 2);
    for (int64_t head = 0; head < args.query_head_count; ++head) {
      float* q = args.q + row * args.q_stride + head * head_dim;
      Turn(args, cosine, sine, q, q);
    }
    const uint32_t* table =
        args.rows.block_tables + args.rows.table_offsets[args.rows.sequences[row]];
    const int64_t block = table[position / pages.block_size];
    const int64_t offset = position % pages.block_size;
    for (int64_t head = 0; head < pages.kv_head_count; ++head) {
      float k[256];
      const float* source = args.k + row * args.kv_stride + head * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) k[d] = source[d];
      Turn(args, cosine, sine, k, k);
      const float* v = args.v + row * args.kv_stride + head * head_dim;
      uint16_t* keys = pages.Keys(block, head) + offset * head_dim;
      uint16_t* values = pages.Values(block, head) + offset * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) {
        keys[d] = Narrow(pages.element, k[d]);
        values[d] = Narrow(pages.element, v[d]);
      }
    }
  }
}

}  // namespace

OpFunction<RopeArgs> RopeFor(Isa isa) { return isa == Isa::kAvx2 ? RopeAvx2 : RopeScalar; }

}  // namespace octavo::kernels
