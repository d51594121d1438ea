#pragma once

// Eight cache elements to fp32 and back: the bits of kernels/half.h. `static`: see the rule in
// kernels/isa.h.

#include <immintrin.h>

#include <cstdint>

#include "kernels/kv_pages.h"

namespace octavo::kernels {

template <KvElement kElement>
[[maybe_unused]] static inline __m256 Widen8(const uint16_t* source) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  if constexpr (kElement == KvElement::kF16) {
    return _mm256_cvtph_ps(raw);
  } else {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  }
}

// Rounds to nearest even.
template <KvElement kElement>
[[maybe_unused]] static inline void Narrow8(__m256 x, uint16_t* destination) {
  __m128i raw;
  if constexpr (kElement == KvElement::kF16) {
    raw = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    raw = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(destination), raw);
}

}  // namespace octavo::kernels
