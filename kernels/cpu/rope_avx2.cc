#include "kernels/cpu/kv_convert_avx2.h"
#include "kernels/cpu/math_avx2.h"
#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {
namespace {

void TurnPair(float c, float s, const float* x, float* y, int64_t first, int64_t second) {
  const float x0 = x[first];
  const float x1 = x[second];
  y[first] = Fma(x0, c, -(x1 * s));
  y[second] = Fma(x1, c, x0 * s);
}

// Pairs (2i, 2i + 1), four a register: fmaddsub subtracts in even lanes and adds in odd ones.
void TurnInterleaved(int64_t pairs, const float* cosine, const float* sine, const float* x,
                     float* y) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256 c =
        _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cosine + i)), twice);
    const __m256 s =
        _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sine + i)), twice);
    const __m256 pair = _mm256_loadu_ps(x + 2 * i);
    const __m256 swapped = _mm256_permute_ps(pair, 0xb1);
    _mm256_storeu_ps(y + 2 * i, _mm256_fmaddsub_ps(pair, c, _mm256_mul_ps(swapped, s)));
  }
  for (; i < pairs; ++i) TurnPair(cosine[i], sine[i], x, y, 2 * i, 2 * i + 1);
}

void TurnHalfSplit(int64_t pairs, const float* cosine, const float* sine, const float* x,
                   float* y) {
  int64_t i = 0;
  for (; i + 8 <= pairs; i += 8) {
    const __m256 c = _mm256_loadu_ps(cosine + i);
    const __m256 s = _mm256_loadu_ps(sine + i);
    const __m256 x0 = _mm256_loadu_ps(x + i);
    const __m256 x1 = _mm256_loadu_ps(x + i + pairs);
    _mm256_storeu_ps(y + i, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
    _mm256_storeu_ps(y + i + pairs, _mm256_fmadd_ps(x1, c, _mm256_mul_ps(x0, s)));
  }
  for (; i < pairs; ++i) TurnPair(cosine[i], sine[i], x, y, i, i + pairs);
}

template <KvElement kElement>
void NarrowRow(const float* source, int64_t head_dim, uint16_t* destination) {
  for (int64_t d = 0; d < head_dim; d += 8) {
    Narrow8<kElement>(_mm256_loadu_ps(source + d), destination + d);
  }
}

template <KvElement kElement>
void RopeRow(const RopeArgs& args, int64_t row) {
  const KvPages& pages = args.pages;
  const int64_t head_dim = pages.head_dim;
  const int64_t pairs = args.rope_dim / 2;
  const int64_t position = args.rows.positions[row];
  const float* cosine = args.cosine + position * pairs;
  const float* sine = args.sine + position * pairs;
  const auto turn = args.style == RopeStyle::kInterleaved ? TurnInterleaved : TurnHalfSplit;
  for (int64_t head = 0; head < args.query_head_count; ++head) {
    float* q = args.q + row * args.q_stride + head * head_dim;
    turn(pairs, cosine, sine, q, q);
  }
  const uint32_t* table =
      args.rows.block_tables + args.rows.table_offsets[args.rows.sequences[row]];
  const int64_t block = table[position / pages.block_size];
  const int64_t offset = position % pages.block_size;
  for (int64_t head = 0; head < pages.kv_head_count; ++head) {
    const float* k = args.k + row * args.kv_stride + head * head_dim;
    alignas(32) float turned[256];
    turn(pairs, cosine, sine, k, turned);
    for (int64_t d = args.rope_dim; d < head_dim; ++d) turned[d] = k[d];
    NarrowRow<kElement>(turned, head_dim, pages.Keys(block, head) + offset * head_dim);
    NarrowRow<kElement>(args.v + row * args.kv_stride + head * head_dim, head_dim,
                        pages.Values(block, head) + offset * head_dim);
  }
}

}  // namespace

void RopeAvx2(const RopeArgs& args, WorkRange rows) {
  const auto rope_row =
      args.pages.element == KvElement::kF16 ? RopeRow<KvElement::kF16> : RopeRow<KvElement::kBF16>;
  for (int64_t row = rows.begin; row < rows.end; ++row) rope_row(args, row);
}

}  // namespace octavo::kernels
