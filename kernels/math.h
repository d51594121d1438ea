#pragma once

// The functions that numbers pass through, as fp32 polynomials of our own: no libm, every rounding
// written down, the same bits from scalar code and from every vector width. `Fma` is a fused
// multiply-add whether the compiler emits an instruction or calls the C library, so a build without
// FMA agrees too. Largest errors against the true value, and special values:
//
//   Exp    1.02 ulp, all arguments tried. Above 88.722831 +inf, below -87.336540 +0: no result is
//          subnormal. NaN gives NaN. Only nearly monotone: nothing may rely on the order of
//          exponentials.
//   Log    0.9 ulp. Below the smallest normal number, zeros included, -inf; negative numbers
//          and NaN give NaN; +inf gives +inf.
//   Silu   3 ulp for |x| <= 80. x < -88.722831 gives -0, +inf gives +inf, -inf and NaN give NaN.
//   Rsqrt  1.5 ulp: an IEEE square root, then an IEEE division.
//
// Sines and cosines are needed for one table only, in double: kernels/rope.h. Everything is
// `static`: see the rule in kernels/isa.h. The AVX2 forms are in kernels/cpu/math_avx2.h.

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

inline constexpr float kExpUnderflow =
    -0x1.5d589ep6f;                                   // the smallest x whose e^x is a normal number
inline constexpr float kExpOverflow = 0x1.62e42ep6f;  // the largest x whose e^x is finite
inline constexpr float kLog2E = 0x1.715476p+0f;
// Adding this to |x| < 2^22 leaves x, rounded to nearest even, in the low bits of the sum.
inline constexpr float kRoundToInt = 0x1.8p23f;
// ln 2 in two fp32 parts, for Exp.
inline constexpr float kLn2Head = 0x1.62e43p-1f;
inline constexpr float kLn2Tail = -0x1.05c61p-29f;
// (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, weighted minimax fit: relative error of e^r below 0.06 *
// 2^-24.
inline constexpr float kExpPolynomial[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558b0p-5f,
                                            0x1.12398ap-7f, 0x1.6a4d0cp-10f};
// ln 2 with a head of 16 bits, so that exponent * head is exact, for Log.
inline constexpr float kLn2ShortHead = 0x1.62e4p-1f;
inline constexpr float kLn2ShortTail = 0x1.7f7d1cp-20f;
inline constexpr uint32_t kSqrtHalfBits = 0x3f3504f3u;
// (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1: relative error of log
// below 0.02 * 2^-24.
inline constexpr float kLogPolynomial[9] = {0x1.555548p-2f,  -0x1.000006p-2f, 0x1.99a478p-3f,
                                            -0x1.555c4ap-3f, 0x1.233b6ap-3f,  -0x1.fc2746p-4f,
                                            0x1.e6c25ap-4f,  -0x1.de0dd6p-4f, 0x1.147ce0p-4f};
inline constexpr float kSmallestNormal = 0x1p-126f;

[[maybe_unused]] static inline float Fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

[[maybe_unused]] static inline float Exp(float x) {
  if (!(x <= kExpOverflow)) return x + std::numeric_limits<float>::infinity();
  if (x < kExpUnderflow) return 0.0f;
  const float shifted = Fma(x, kLog2E, kRoundToInt);
  const float n = shifted - kRoundToInt;
  const float r = Fma(-n, kLn2Tail, Fma(-n, kLn2Head, x));
  float p = kExpPolynomial[4];
  for (int i = 3; i >= 0; --i) p = Fma(p, r, kExpPolynomial[i]);
  p = Fma(p, r * r, r) + 1.0f;
  // The low bits of `shifted` are n; shifted to the exponent field they multiply by 2^n, exactly.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) +
                              (std::bit_cast<uint32_t>(shifted) << 23));
}

[[maybe_unused]] static inline float Log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (!(x >= kSmallestNormal)) {
    const bool is_small = x > -kSmallestNormal;  // zero or subnormal
    return is_small ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  }
  if (x == kInfinity) return x;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits - kSqrtHalfBits) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23));
  const float e = static_cast<float>(exponent);
  const float f = m - 1.0f;  // exact
  float p = kLogPolynomial[8];
  for (int i = 7; i >= 0; --i) p = Fma(p, f, kLogPolynomial[i]);
  const float tail = Fma(f * f, Fma(p, f, -0.5f), e * kLn2ShortTail);
  return Fma(e, kLn2ShortHead, f + tail);
}

[[maybe_unused]] static inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

[[maybe_unused]] static inline float Rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }

// The order of `a > b ? a : b`, which is what MAXPS does with zeros of both signs and with NaN.
[[maybe_unused]] static inline float Max(float a, float b) { return a > b ? a : b; }

// The halving tree: x[i] += x[i + half] for half = 8, 4, 2, 1. Every sum of 16 virtual lanes ends
// with it.
[[maybe_unused]] static inline float SumOf16(const float* x) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = x[i] + x[i + 8];
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) s[i] = s[i] + s[i + half];
  }
  return s[0];
}

// The functions over arrays, for tests and benchmarks. Work items are elements.
enum class MathFunction : uint8_t { kExp, kLog, kSilu, kRsqrt };

struct MathArgs {
  MathFunction function = MathFunction::kExp;
  const float* x = nullptr;
  float* y = nullptr;
  int64_t count = 0;
};

inline int64_t MathWorkCount(const MathArgs& args) { return args.count; }
OpFunction<MathArgs> MathFor(Isa isa);

}  // namespace octavo::kernels
