#pragma once

// kernels/math.h eight at a time: the same operations in the same order, so the same bits. Special
// cases are blended in at the end instead of branched on at the start.

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "kernels/math.h"

namespace octavo::kernels {

[[maybe_unused]] static inline __m256 Exp8(__m256 x) {
  const __m256 round = _mm256_set1_ps(kRoundToInt);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(kLog2E), round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Tail),
                                    _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Head), x));
  __m256 p = _mm256_set1_ps(kExpPolynomial[4]);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPolynomial[3]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPolynomial[2]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPolynomial[1]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPolynomial[0]));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i scale = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  const __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), scale));
  const __m256 too_big = _mm256_cmp_ps(x, _mm256_set1_ps(kExpOverflow), _CMP_NLE_UQ);  // or a NaN
  const __m256 too_small = _mm256_cmp_ps(x, _mm256_set1_ps(kExpUnderflow), _CMP_LT_OQ);
  const __m256 infinite = _mm256_add_ps(x, _mm256_set1_ps(std::numeric_limits<float>::infinity()));
  return _mm256_andnot_ps(too_small, _mm256_blendv_ps(y, infinite, too_big));
}

[[maybe_unused]] static inline __m256 Log8(__m256 x) {
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i exponent = _mm256_srai_epi32(
      _mm256_sub_epi32(bits, _mm256_set1_epi32(static_cast<int32_t>(kSqrtHalfBits))), 23);
  const __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
  const __m256 e = _mm256_cvtepi32_ps(exponent);
  const __m256 f = _mm256_sub_ps(m, _mm256_set1_ps(1.0f));
  __m256 p = _mm256_set1_ps(kLogPolynomial[8]);
  for (int i = 7; i >= 0; --i) p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kLogPolynomial[i]));
  const __m256 tail =
      _mm256_fmadd_ps(_mm256_mul_ps(f, f), _mm256_fmadd_ps(p, f, _mm256_set1_ps(-0.5f)),
                      _mm256_mul_ps(e, _mm256_set1_ps(kLn2ShortTail)));
  __m256 y = _mm256_fmadd_ps(e, _mm256_set1_ps(kLn2ShortHead), _mm256_add_ps(f, tail));
  y = _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, infinity, _CMP_EQ_OQ));
  const __m256 not_normal =
      _mm256_cmp_ps(x, _mm256_set1_ps(kSmallestNormal), _CMP_NGE_UQ);  // or a NaN
  const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(-kSmallestNormal), _CMP_GT_OQ);
  const __m256 special = _mm256_blendv_ps(_mm256_set1_ps(std::numeric_limits<float>::quiet_NaN()),
                                          _mm256_sub_ps(_mm256_setzero_ps(), infinity), small);
  return _mm256_blendv_ps(y, special, not_normal);
}

[[maybe_unused]] static inline __m256 Silu8(__m256 x) {
  const __m256 minus_x = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), Exp8(minus_x)));
}

[[maybe_unused]] static inline __m256 Rsqrt8(__m256 x) {
  return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(x));
}

// SumOf16 of the lanes (low[0..7], high[0..7]).
[[maybe_unused]] static inline float SumOf16(__m256 low, __m256 high) {
  const __m256 s8 = _mm256_add_ps(low, high);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// The first `count` lanes set, 0 <= count <= 8; for the rest of a row.
[[maybe_unused]] static inline __m256i FirstLanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace octavo::kernels
