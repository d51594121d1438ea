// Compiled with -mavx2 -mfma -mf16c; see the rule in kernels/isa.h.

#include <immintrin.h>

#include "kernels/cpu/linear_ops_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

// Bits of the largest |x|: as integers, magnitudes order like the floats, NaN above infinity above
// all numbers.
inline __attribute__((always_inline)) uint32_t MaxMagnitudeBits(const __m256 x[4]) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i m[4];
  for (int i = 0; i < 4; ++i) m[i] = _mm256_and_si256(_mm256_castps_si256(x[i]), mask);
  const __m256i a = _mm256_max_epi32(_mm256_max_epi32(m[0], m[1]), _mm256_max_epi32(m[2], m[3]));
  __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  b = _mm_max_epi32(b, _mm_shuffle_epi32(b, _MM_SHUFFLE(1, 0, 3, 2)));
  b = _mm_max_epi32(b, _mm_shuffle_epi32(b, _MM_SHUFFLE(2, 3, 0, 1)));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(b));
}

inline __attribute__((always_inline)) int32_t Total(__m256i v) {
  __m128i b = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  b = _mm_add_epi32(b, _mm_shuffle_epi32(b, _MM_SHUFFLE(1, 0, 3, 2)));
  b = _mm_add_epi32(b, _mm_shuffle_epi32(b, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(b);
}

inline __attribute__((always_inline)) void QuantizeGroup(const float* input, int16_t* values,
                                                         float* scale, float* sum) {
  __m256 x[4];
  for (int i = 0; i < 4; ++i) x[i] = _mm256_loadu_ps(input + 8 * i);
  const uint32_t amax_bits = MaxMagnitudeBits(x);
  auto* out = reinterpret_cast<__m256i*>(values);
  if (amax_bits >= 0x7f800000u || amax_bits < 0x0f800000u) {
    _mm256_storeu_si256(out, _mm256_setzero_si256());
    _mm256_storeu_si256(out + 1, _mm256_setzero_si256());
    *scale = *sum = amax_bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
    return;
  }
  float amax;
  __builtin_memcpy(&amax, &amax_bits, sizeof(amax));
  const __m256 inverse = _mm256_set1_ps(32767.0f / amax);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse));
  // packs works within 128-bit halves; the permutation puts the four quarters back in order.
  const __m256i low = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xd8);
  const __m256i high = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2], q[3]), 0xd8);
  _mm256_storeu_si256(out, low);
  _mm256_storeu_si256(out + 1, high);
  const int32_t total =
      Total(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
  const float s = amax / 32767.0f;
  *scale = s;
  *sum = static_cast<float>(total) * s;
}

// Round to nearest even by adding half a unit less one, plus the bit that decides ties; a NaN keeps
// its upper bits and turns quiet.
inline __attribute__((always_inline)) __m256i RoundToBf16(__m256i bits) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}

inline __attribute__((always_inline)) void RoundGroup(const float* input, uint16_t* output) {
  const auto* in = reinterpret_cast<const __m256i*>(input);
  auto* out = reinterpret_cast<__m256i*>(output);
  for (int i = 0; i < 2; ++i) {
    const __m256i a = RoundToBf16(_mm256_loadu_si256(in + 2 * i));
    const __m256i b = RoundToBf16(_mm256_loadu_si256(in + 2 * i + 1));
    _mm256_storeu_si256(out + i, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
  }
}

}  // namespace

void QuantizeRows(const QuantizeRowsArgs& args, WorkRange rows) {
  const QuantizedRows& out = args.output;
  const int64_t groups = out.dim / 32;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = args.input + r * args.input_stride;
    if (out.format == ActivationFormat::kInt16) {
      for (int64_t g = 0; g < groups; ++g) {
        QuantizeGroup(x + 32 * g, out.values + r * out.dim + 32 * g, out.scales + r * groups + g,
                      out.sums + r * groups + g);
      }
    } else if (out.format == ActivationFormat::kBf16) {
      for (int64_t g = 0; g < groups; ++g) RoundGroup(x + 32 * g, out.bf16 + r * out.dim + 32 * g);
    } else if (out.f32 != args.input) {
      __builtin_memcpy(out.f32 + r * out.dim, x, static_cast<size_t>(out.dim) * sizeof(float));
    }
  }
}

}  // namespace octavo::kernels::avx2
