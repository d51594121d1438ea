#pragma once

// How each quantised type's packed groups (kernels/pack.h) become int16 pairs in registers. For the
// files of kernels/cpu that are compiled with AVX2 only; everything is in an unnamed namespace so
// that no copy of it can leave them.
//
// A decoder has
//   kType, kGroups (per unit), kHeaderBytes, kGroupBytes
//   kHasMin                 the type has a minimum term
//   kHalfScales             Q6_K: each half of 16 inputs has its own integer scale
//   Unit / LoadUnit(header) the fp32 scales (and minima) of a unit, both halves of the panel
//   Scales(unit, body)      those of one group
//   FourPairs(body, b, f)   calls f(s, w0, w1) for s = 0..3: w0 and w1 hold the int16 codes of
//                           inputs 8b + 2s and 8b + 2s + 1 for outputs 0..7 and 8..15, ready for
//                           vpmaddwd

#include <immintrin.h>

#include <cstdint>

#define OCTAVO_INLINE inline __attribute__((always_inline))

namespace octavo::kernels::avx2 {
namespace {

OCTAVO_INLINE __m256i Load(const uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}
OCTAVO_INLINE __m128i LoadHalf(const uint8_t* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}
OCTAVO_INLINE __m256 LoadF16x8(const uint8_t* bytes) { return _mm256_cvtph_ps(LoadHalf(bytes)); }
OCTAVO_INLINE __m128i LoadQuarter(const uint8_t* bytes) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
}
OCTAVO_INLINE __m256 LoadU8x8(const uint8_t* bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(LoadQuarter(bytes)));
}

// What a group's sums are multiplied with, for outputs 0..7 and 8..15.
struct GroupScales {
  __m256 scale[2];
  __m256 min[2] = {};  // set if the decoder has kHasMin, added as fma(min, sum, acc)
};

// Unsigned nibbles, bits 4s of each 16-bit lane of row b, with what lies above them: `upper.Join<s,
// half>(nibbles)` puts it there.
template <typename Upper, typename F>
OCTAVO_INLINE void FourNibblePairs(const uint8_t* nibbles, int b, Upper upper, F f) {
  const __m256i mask = _mm256_set1_epi16(15);
  const __m256i v0 = Load(nibbles + 64 * b);
  const __m256i v1 = Load(nibbles + 64 * b + 32);
  f(0, upper.template Join<0, 0>(_mm256_and_si256(v0, mask)),
    upper.template Join<0, 1>(_mm256_and_si256(v1, mask)));
  f(1, upper.template Join<1, 0>(_mm256_and_si256(_mm256_srli_epi16(v0, 4), mask)),
    upper.template Join<1, 1>(_mm256_and_si256(_mm256_srli_epi16(v1, 4), mask)));
  f(2, upper.template Join<2, 0>(_mm256_and_si256(_mm256_srli_epi16(v0, 8), mask)),
    upper.template Join<2, 1>(_mm256_and_si256(_mm256_srli_epi16(v1, 8), mask)));
  f(3, upper.template Join<3, 0>(_mm256_srli_epi16(v0, 12)),
    upper.template Join<3, 1>(_mm256_srli_epi16(v1, 12)));
}

// Four-bit codes: nothing lies above.
struct NothingAbove {
  template <int kS, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    return nibbles;
  }
};

// The fifth bits of row b: bits 4b .. 4b + 3 of each lane, moved down to bits 0 .. 3.
struct FifthBits {
  __m256i bits[2];
  OCTAVO_INLINE FifthBits(const uint8_t* plane, int b) {
    const __m128i shift = _mm_cvtsi32_si128(4 * b);
    bits[0] = _mm256_srl_epi16(Load(plane), shift);
    bits[1] = _mm256_srl_epi16(Load(plane + 32), shift);
  }
  template <int kS, int kHalf>
  OCTAVO_INLINE __m256i AtBitFour() const {
    return _mm256_and_si256(_mm256_slli_epi16(bits[kHalf], 4 - kS), _mm256_set1_epi16(16));
  }
};

// Q5_1, Q5_K: the fifth bit is worth 16.
struct PlusSixteen : FifthBits {
  using FifthBits::FifthBits;
  template <int kS, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    return _mm256_or_si256(nibbles, AtBitFour<kS, kHalf>());
  }
};

// Q5_0: the (inverted) fifth bit is worth -16.
struct MinusSixteen : FifthBits {
  using FifthBits::FifthBits;
  template <int kS, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    return _mm256_sub_epi16(nibbles, AtBitFour<kS, kHalf>());
  }
};

// Q6_K: two bits of two's complement above the nibble. Shifted to the top of the lane and back,
// they carry their sign; the bits below them are masked off. Row b has bits 8 * (b % 2) .. + 7 of
// word b / 2, moved up to bits 8 .. 15 here.
struct UpperPairs {
  __m256i pairs[2];
  OCTAVO_INLINE UpperPairs(const uint8_t* planes, int b) {
    const __m128i shift = _mm_cvtsi32_si128(b % 2 == 0 ? 8 : 0);
    pairs[0] = _mm256_sll_epi16(Load(planes + 64 * (b / 2)), shift);
    pairs[1] = _mm256_sll_epi16(Load(planes + 64 * (b / 2) + 32), shift);
  }
  template <int kS, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    const __m256i sign = _mm256_srai_epi16(_mm256_slli_epi16(pairs[kHalf], 6 - 2 * kS), 10);
    return _mm256_or_si256(nibbles,
                           _mm256_and_si256(sign, _mm256_set1_epi16(static_cast<short>(0xfff0))));
  }
};

// ---- Blocks of 32: the header is d, or d and m; both serve the one group as they are. ----

template <bool kMinimum>
struct SimpleScales {
  static constexpr int kGroups = 1;
  static constexpr int kHeaderBytes = kMinimum ? 64 : 32;
  static constexpr bool kHasMin = kMinimum;
  static constexpr bool kHalfScales = false;
  using Unit = GroupScales;
  static OCTAVO_INLINE Unit LoadUnit(const uint8_t* header) {
    Unit unit;
    unit.scale[0] = LoadF16x8(header);
    unit.scale[1] = LoadF16x8(header + 16);
    if constexpr (kMinimum) {
      unit.min[0] = LoadF16x8(header + 32);
      unit.min[1] = LoadF16x8(header + 48);
    }
    return unit;
  }
  // By reference: a copy goes through memory in halves and stalls what reads it whole.
  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): the unit outlives its use.
  static OCTAVO_INLINE const GroupScales& Scales(const Unit& unit, const uint8_t*) { return unit; }
};

struct DecoderQ4_0 : SimpleScales<false> {
  static constexpr int kGroupBytes = 256;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    const __m256i v0 = Load(body + 64 * b);
    const __m256i v1 = Load(body + 64 * b + 32);
    f(0, _mm256_srai_epi16(_mm256_slli_epi16(v0, 12), 12),
      _mm256_srai_epi16(_mm256_slli_epi16(v1, 12), 12));
    f(1, _mm256_srai_epi16(_mm256_slli_epi16(v0, 8), 12),
      _mm256_srai_epi16(_mm256_slli_epi16(v1, 8), 12));
    f(2, _mm256_srai_epi16(_mm256_slli_epi16(v0, 4), 12),
      _mm256_srai_epi16(_mm256_slli_epi16(v1, 4), 12));
    f(3, _mm256_srai_epi16(v0, 12), _mm256_srai_epi16(v1, 12));
  }
};

struct DecoderQ4_1 : SimpleScales<true> {
  static constexpr int kGroupBytes = 256;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    FourNibblePairs(body, b, NothingAbove(), f);
  }
};

struct DecoderQ5_0 : SimpleScales<false> {
  static constexpr int kGroupBytes = 64 + 256;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    FourNibblePairs(body + 64, b, MinusSixteen(body, b), f);
  }
};

struct DecoderQ5_1 : SimpleScales<true> {
  static constexpr int kGroupBytes = 64 + 256;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    FourNibblePairs(body + 64, b, PlusSixteen(body, b), f);
  }
};

struct DecoderQ8_0 : SimpleScales<false> {
  static constexpr int kGroupBytes = 512;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    const uint8_t* codes = body + 128 * b;
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      f(s, _mm256_cvtepi8_epi16(LoadHalf(codes + 32 * s)),
        _mm256_cvtepi8_epi16(LoadHalf(codes + 32 * s + 16)));
    }
  }
};

// ---- Superblocks of 256. ----

// Q4_K and Q5_K: d and dmin of the superblock times the group's 6-bit factors; both products are
// exact. The minimum is negated here, so that it is added like that of the small blocks.
struct SuperScales {
  static constexpr int kGroups = 8;
  static constexpr int kHeaderBytes = 64;
  static constexpr bool kHasMin = true;
  static constexpr bool kHalfScales = false;
  using Unit = GroupScales;
  static OCTAVO_INLINE Unit LoadUnit(const uint8_t* header) {
    Unit unit;
    unit.scale[0] = LoadF16x8(header);
    unit.scale[1] = LoadF16x8(header + 16);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    unit.min[0] = _mm256_xor_ps(LoadF16x8(header + 32), sign);
    unit.min[1] = _mm256_xor_ps(LoadF16x8(header + 48), sign);
    return unit;
  }
  static OCTAVO_INLINE GroupScales Scales(const Unit& unit, const uint8_t* body) {
    GroupScales scales;
    for (int h = 0; h < 2; ++h) {
      scales.scale[h] = _mm256_mul_ps(unit.scale[h], LoadU8x8(body + 8 * h));
      scales.min[h] = _mm256_mul_ps(unit.min[h], LoadU8x8(body + 16 + 8 * h));
    }
    return scales;
  }
};

struct DecoderQ4_K : SuperScales {
  static constexpr int kGroupBytes = 32 + 256;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    FourNibblePairs(body + 32, b, NothingAbove(), f);
  }
};

struct DecoderQ5_K : SuperScales {
  static constexpr int kGroupBytes = 32 + 64 + 256;
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    FourNibblePairs(body + 96, b, PlusSixteen(body + 32, b), f);
  }
};

struct DecoderQ6_K {
  static constexpr int kGroups = 8;
  static constexpr int kHeaderBytes = 32;
  static constexpr int kGroupBytes = 32 + 128 + 256;
  static constexpr bool kHasMin = false;
  static constexpr bool kHalfScales = true;
  using Unit = GroupScales;
  static OCTAVO_INLINE Unit LoadUnit(const uint8_t* header) {
    return SimpleScales<false>::LoadUnit(header);
  }
  // NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): the unit outlives its use.
  static OCTAVO_INLINE const GroupScales& Scales(const Unit& unit, const uint8_t*) { return unit; }
  // The int8 scales of inputs 0..15 (k_half 0) or 16..31, of outputs 8 * h .. 8 * h + 7.
  static OCTAVO_INLINE __m256i HalfScale(const uint8_t* body, int k_half, int h) {
    return _mm256_cvtepi8_epi32(LoadQuarter(body + 16 * k_half + 8 * h));
  }
  template <typename F>
  static OCTAVO_INLINE void FourPairs(const uint8_t* body, int b, F f) {
    FourNibblePairs(body + 160, b, UpperPairs(body + 32, b), f);
  }
};

}  // namespace
}  // namespace octavo::kernels::avx2
