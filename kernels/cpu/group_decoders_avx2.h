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
//   ForEachPair(body, f)    calls f(t, w0, w1) for t = 0..15: w0 and w1 hold the int16 codes of
//   inputs 2t and 2t + 1 for outputs 0..7
//                           and 8..15, ready for vpmaddwd

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

// Unsigned nibbles: bits 4s of each 16-bit lane.
template <typename F>
OCTAVO_INLINE void ForEachNibblePair(const uint8_t* nibbles, F f) {
  const __m256i mask = _mm256_set1_epi16(15);
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    const __m256i v0 = Load(nibbles + 64 * b);
    const __m256i v1 = Load(nibbles + 64 * b + 32);
    f(4 * b, _mm256_and_si256(v0, mask), _mm256_and_si256(v1, mask));
    f(4 * b + 1, _mm256_and_si256(_mm256_srli_epi16(v0, 4), mask),
      _mm256_and_si256(_mm256_srli_epi16(v1, 4), mask));
    f(4 * b + 2, _mm256_and_si256(_mm256_srli_epi16(v0, 8), mask),
      _mm256_and_si256(_mm256_srli_epi16(v1, 8), mask));
    f(4 * b + 3, _mm256_srli_epi16(v0, 12), _mm256_srli_epi16(v1, 12));
  }
}

// Bit t of each lane of `bits`, moved to bit 4.
template <int kT>
OCTAVO_INLINE __m256i FifthBit(__m256i bits) {
  const __m256i mask = _mm256_set1_epi16(16);
  if constexpr (kT < 4) return _mm256_and_si256(_mm256_slli_epi16(bits, 4 - kT), mask);
  if constexpr (kT == 4) return _mm256_and_si256(bits, mask);
  return _mm256_and_si256(_mm256_srli_epi16(bits, kT < 4 ? 0 : kT - 4), mask);
}

// One row of nibbles with the bits above them: f(4b + s, ...) for s = 0..3. `combine` joins nibbles
// and shifted upper bits.
template <int kB, typename Upper, typename F>
OCTAVO_INLINE void NibbleRow(const uint8_t* nibbles, Upper upper, F f) {
  const __m256i mask = _mm256_set1_epi16(15);
  const __m256i v0 = Load(nibbles + 64 * kB);
  const __m256i v1 = Load(nibbles + 64 * kB + 32);
  f(4 * kB, upper.template Join<4 * kB, 0>(_mm256_and_si256(v0, mask)),
    upper.template Join<4 * kB, 1>(_mm256_and_si256(v1, mask)));
  f(4 * kB + 1,
    upper.template Join<4 * kB + 1, 0>(_mm256_and_si256(_mm256_srli_epi16(v0, 4), mask)),
    upper.template Join<4 * kB + 1, 1>(_mm256_and_si256(_mm256_srli_epi16(v1, 4), mask)));
  f(4 * kB + 2,
    upper.template Join<4 * kB + 2, 0>(_mm256_and_si256(_mm256_srli_epi16(v0, 8), mask)),
    upper.template Join<4 * kB + 2, 1>(_mm256_and_si256(_mm256_srli_epi16(v1, 8), mask)));
  f(4 * kB + 3, upper.template Join<4 * kB + 3, 0>(_mm256_srli_epi16(v0, 12)),
    upper.template Join<4 * kB + 3, 1>(_mm256_srli_epi16(v1, 12)));
}

template <typename Upper, typename F>
OCTAVO_INLINE void ForEachWidePair(const uint8_t* nibbles, Upper upper, F f) {
  NibbleRow<0>(nibbles, upper, f);
  NibbleRow<1>(nibbles, upper, f);
  NibbleRow<2>(nibbles, upper, f);
  NibbleRow<3>(nibbles, upper, f);
}

// Q5_1, Q5_K: the fifth bit is worth 16.
struct FifthBitPlane {
  __m256i bits[2];
  OCTAVO_INLINE explicit FifthBitPlane(const uint8_t* plane)
      : bits{Load(plane), Load(plane + 32)} {}
  template <int kT, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    return _mm256_or_si256(nibbles, FifthBit<kT>(bits[kHalf]));
  }
};

// Q5_0: the (inverted) fifth bit is worth -16.
struct NegativeFifthBitPlane {
  __m256i bits[2];
  OCTAVO_INLINE explicit NegativeFifthBitPlane(const uint8_t* plane)
      : bits{Load(plane), Load(plane + 32)} {}
  template <int kT, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    return _mm256_sub_epi16(nibbles, FifthBit<kT>(bits[kHalf]));
  }
};

// Q6_K: two bits of two's complement above the nibble. Shifted to the top of the lane and back,
// they carry their sign; the bits below them are masked off.
struct UpperPairPlanes {
  const uint8_t* planes;
  template <int kT, int kHalf>
  OCTAVO_INLINE __m256i Join(__m256i nibbles) const {
    const __m256i word = Load(planes + 64 * (kT / 8) + 32 * kHalf);
    constexpr int kField = kT % 8;
    const __m256i top = kField == 7 ? word : _mm256_slli_epi16(word, 14 - 2 * kField);
    const __m256i upper =
        _mm256_and_si256(_mm256_srai_epi16(top, 10), _mm256_set1_epi16(static_cast<short>(0xfff0)));
    return _mm256_or_si256(nibbles, upper);
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
  static OCTAVO_INLINE GroupScales Scales(const Unit& unit, const uint8_t*) { return unit; }
};

struct DecoderQ4_0 : SimpleScales<false> {
  static constexpr int kGroupBytes = 256;
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const __m256i v0 = Load(body + 64 * b);
      const __m256i v1 = Load(body + 64 * b + 32);
      f(4 * b, _mm256_srai_epi16(_mm256_slli_epi16(v0, 12), 12),
        _mm256_srai_epi16(_mm256_slli_epi16(v1, 12), 12));
      f(4 * b + 1, _mm256_srai_epi16(_mm256_slli_epi16(v0, 8), 12),
        _mm256_srai_epi16(_mm256_slli_epi16(v1, 8), 12));
      f(4 * b + 2, _mm256_srai_epi16(_mm256_slli_epi16(v0, 4), 12),
        _mm256_srai_epi16(_mm256_slli_epi16(v1, 4), 12));
      f(4 * b + 3, _mm256_srai_epi16(v0, 12), _mm256_srai_epi16(v1, 12));
    }
  }
};

struct DecoderQ4_1 : SimpleScales<true> {
  static constexpr int kGroupBytes = 256;
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
    ForEachNibblePair(body, f);
  }
};

struct DecoderQ5_0 : SimpleScales<false> {
  static constexpr int kGroupBytes = 64 + 256;
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
    ForEachWidePair(body + 64, NegativeFifthBitPlane(body), f);
  }
};

struct DecoderQ5_1 : SimpleScales<true> {
  static constexpr int kGroupBytes = 64 + 256;
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
    ForEachWidePair(body + 64, FifthBitPlane(body), f);
  }
};

struct DecoderQ8_0 : SimpleScales<false> {
  static constexpr int kGroupBytes = 512;
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      f(t, _mm256_cvtepi8_epi16(LoadHalf(body + 32 * t)),
        _mm256_cvtepi8_epi16(LoadHalf(body + 32 * t + 16)));
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
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
    ForEachNibblePair(body + 32, f);
  }
};

struct DecoderQ5_K : SuperScales {
  static constexpr int kGroupBytes = 32 + 64 + 256;
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
    ForEachWidePair(body + 96, FifthBitPlane(body + 32), f);
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
  static OCTAVO_INLINE GroupScales Scales(const Unit& unit, const uint8_t*) { return unit; }
  // The int8 scales of inputs 0..15 (k_half 0) or 16..31, of outputs 8 * h .. 8 * h + 7.
  static OCTAVO_INLINE __m256i HalfScale(const uint8_t* body, int k_half, int h) {
    return _mm256_cvtepi8_epi32(LoadQuarter(body + 16 * k_half + 8 * h));
  }
  template <typename F>
  static OCTAVO_INLINE void ForEachPair(const uint8_t* body, F f) {
    ForEachWidePair(body + 160, UpperPairPlanes{body + 32}, f);
  }
};

}  // namespace
}  // namespace octavo::kernels::avx2
