#include <bit>
#include <cstdint>

#include "kernels/rope.h"

// Doubles, with every rounding ours: only +, -, *, / and fma, so that the table does not depend on
// a C library's version or on which of its variants the machine selects.

namespace octavo::kernels {
namespace {

constexpr double kRoundToInt = 0x1.8p52;  // adding it to |x| < 2^51 rounds x to nearest even
constexpr double kLn2Head = 0x1.62e42fefa39efp-1;
constexpr double kLn2Tail = 0x1.abc9e3b39803fp-56;
constexpr double kHalfPiHead = 0x1.921fb54442d18p+0;
constexpr double kHalfPiTail = 0x1.1a62633145c07p-54;
constexpr double kPi = 0x1.921fb54442d18p+1;

double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

double Round(double x) { return (x + kRoundToInt) - kRoundToInt; }

// x > 0 and normal. ln(m * 2^e) = e ln 2 + 2 atanh((m - 1) / (m + 1)), sqrt(1/2) <= m < sqrt(2).
double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdull;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t exponent = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52));
  const double f = (m - 1.0) / (m + 1.0);
  const double square = f * f;
  double series = 0.0;
  for (int k = 25; k >= 3; k -= 2) series = Fma(series, square, 1.0 / k);
  const double atanh_twice = 2.0 * Fma(series * square, f, f);
  const double e = static_cast<double>(exponent);
  return Fma(e, kLn2Head, Fma(e, kLn2Tail, atanh_twice));
}

// |x| < 700. Taylor series of degree 14 on |r| <= ln(2) / 2.
double Exp(double x) {
  const double n = Round(x * (1.0 / kLn2Head));
  const double r = Fma(-n, kLn2Tail, Fma(-n, kLn2Head, x));
  double series = 1.0;
  for (int k = 14; k >= 1; --k) series = Fma(series, r / k, 1.0);
  const uint64_t scale = static_cast<uint64_t>(static_cast<int64_t>(n)) << 52;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(series) + scale);
}

struct SinCos {
  double sine;
  double cosine;
};

// 0 <= angle < 2^51. Taylor series of degrees 17 and 16 on |r| <= pi / 4, then the quadrant.
SinCos SinCosOf(double angle) {
  const double quarter = Round(angle * (1.0 / kHalfPiHead));
  const double r = Fma(-quarter, kHalfPiTail, Fma(-quarter, kHalfPiHead, angle));
  const double square = r * r;
  double sine = 1.0;
  for (int k = 16; k >= 2; k -= 2) sine = Fma(sine, -square / (k * (k + 1)), 1.0);
  sine *= r;
  double cosine = 1.0;
  for (int k = 15; k >= 1; k -= 2) cosine = Fma(cosine, -square / (k * (k + 1)), 1.0);
  switch (static_cast<int64_t>(quarter) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

// theta^(-2i / rope_dim), of rope_dim / 2 pairs.
double BaseFrequency(double log_theta, int64_t pair, int64_t rope_dim) {
  return Exp(-(static_cast<double>(2 * pair) / static_cast<double>(rope_dim)) * log_theta);
}

}  // namespace

void RopeTable(const RopeTableArgs& args, WorkRange positions) {
  const int64_t pairs = args.rope_dim / 2;
  const double log_theta = Log(args.theta);
  for (int64_t i = 0; i < pairs; ++i) {
    const double divisor = args.linear_scale * (args.factors == nullptr ? 1.0 : args.factors[i]);
    const double frequency = BaseFrequency(log_theta, i, args.rope_dim) / divisor;
    for (int64_t position = positions.begin; position < positions.end; ++position) {
      const SinCos point = SinCosOf(static_cast<double>(position) * frequency);
      args.cosine[position * pairs + i] = static_cast<float>(point.cosine);
      args.sine[position * pairs + i] = static_cast<float>(point.sine);
    }
  }
}

void Llama3Factors(const Llama3Scaling& scaling, double theta, std::span<float> factors) {
  const int64_t pairs = static_cast<int64_t>(factors.size());
  const double log_theta = Log(theta);
  const double low = scaling.low_frequency_factor;
  const double high = scaling.high_frequency_factor;
  for (int64_t i = 0; i < pairs; ++i) {
    const double wavelength = 2.0 * kPi / BaseFrequency(log_theta, i, 2 * pairs);
    // How many wavelengths the original context held: few means the pair must be stretched, many
    // that it must not.
    const double waves = scaling.original_context / wavelength;
    double factor = 1.0;
    if (waves < low) {
      factor = scaling.factor;
    } else if (waves <= high) {
      const double smooth = (waves - low) / (high - low);
      factor = 1.0 / ((1.0 - smooth) / scaling.factor + smooth);
    }
    factors[static_cast<size_t>(i)] = static_cast<float>(factor);
  }
}

}  // namespace octavo::kernels
