// Compiled with -mavx2; see the rule in kernels/isa.h.

#include "tests/bench/machine_limits_avx2.h"

#include <immintrin.h>

namespace octavo::bench {

uint64_t ReadAll(const uint8_t* begin, size_t bytes) {
  __m256i sum[4];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  for (const uint8_t* p = begin; p < begin + bytes; p += 128) {
    for (int i = 0; i < 4; ++i) {
      sum[i] =
          _mm256_xor_si256(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32 * i)));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0));
}

// Written out in the machine's own words: a compiler would compute one product for all twelve.
uint64_t MultiplyPairs(int64_t rounds) {
  __m256i s0 = _mm256_set1_epi32(1), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0;
  __m256i s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;
  const __m256i a = _mm256_set1_epi16(3);
  const __m256i b = _mm256_set1_epi16(5);
  __m256i t0, t1;
#define OCTAVO_TWO_PAIRS(even, odd)                    \
  __asm__ volatile(                                    \
      "vpmaddwd %4, %5, %2\n\tvpmaddwd %4, %5, %3\n\t" \
      "vpaddd %2, %0, %0\n\tvpaddd %3, %1, %1"         \
      : "+x"(even), "+x"(odd), "=&x"(t0), "=&x"(t1)    \
      : "x"(a), "x"(b))
  for (int64_t round = 0; round < rounds; ++round) {
    OCTAVO_TWO_PAIRS(s0, s1);
    OCTAVO_TWO_PAIRS(s2, s3);
    OCTAVO_TWO_PAIRS(s4, s5);
    OCTAVO_TWO_PAIRS(s6, s7);
    OCTAVO_TWO_PAIRS(s8, s9);
    OCTAVO_TWO_PAIRS(s10, s11);
  }
#undef OCTAVO_TWO_PAIRS
  const __m256i all =
      _mm256_add_epi32(_mm256_add_epi32(_mm256_add_epi32(s0, s1), _mm256_add_epi32(s2, s3)),
                       _mm256_add_epi32(_mm256_add_epi32(s4, s5), _mm256_add_epi32(s6, s7)));
  const __m256i rest = _mm256_add_epi32(_mm256_add_epi32(s8, s9), _mm256_add_epi32(s10, s11));
  return static_cast<uint64_t>(_mm256_extract_epi64(_mm256_add_epi32(all, rest), 0));
}

uint64_t FuseMultiplyAdditions(int64_t rounds) {
  __m256 s0 = _mm256_set1_ps(1.0f), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0;
  __m256 s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;
  const __m256 a = _mm256_set1_ps(0x1p-30f);
#define OCTAVO_THREE_FMAS(x, y, z)                                                              \
  __asm__ volatile("vfmadd231ps %3, %3, %0\n\tvfmadd231ps %3, %3, %1\n\tvfmadd231ps %3, %3, %2" \
                   : "+x"(x), "+x"(y), "+x"(z)                                                  \
                   : "x"(a))
  for (int64_t round = 0; round < rounds; ++round) {
    OCTAVO_THREE_FMAS(s0, s1, s2);
    OCTAVO_THREE_FMAS(s3, s4, s5);
    OCTAVO_THREE_FMAS(s6, s7, s8);
    OCTAVO_THREE_FMAS(s9, s10, s11);
  }
#undef OCTAVO_THREE_FMAS
  const __m256 all =
      _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)),
                                  _mm256_add_ps(_mm256_add_ps(s4, s5), _mm256_add_ps(s6, s7))),
                    _mm256_add_ps(_mm256_add_ps(s8, s9), _mm256_add_ps(s10, s11)));
  return static_cast<uint64_t>(_mm256_cvtss_f32(all));
}

}  // namespace octavo::bench
