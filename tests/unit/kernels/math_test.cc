#include "kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/fp_env.h"
#include "op_fixtures.h"

namespace octavo::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Apply(Isa isa, MathFunction function, const std::vector<float>& x,
                         Partition partition = Partition::kOneRange) {
  std::vector<float> y(x.size());
  const MathArgs args{function, x.data(), y.data(), static_cast<int64_t>(x.size())};
  RunOp(MathFor(isa), args, MathWorkCount(args), partition);
  return y;
}

double Truth(MathFunction function, double x) {
  switch (function) {
    case MathFunction::kExp:
      return std::exp(x);
    case MathFunction::kLog:
      return std::log(x);
    case MathFunction::kSilu:
      return x / (1.0 + std::exp(-x));
    case MathFunction::kRsqrt:
      return 1.0 / std::sqrt(x);
  }
  return 0;
}

// Every 257th fp32 number of [low, high], signs apart: millions of arguments over all exponents.
std::vector<float> Sweep(float low, float high) {
  std::vector<float> x;
  for (uint32_t bits = std::bit_cast<uint32_t>(low); bits <= std::bit_cast<uint32_t>(high);
       bits += 257) {
    x.push_back(std::bit_cast<float>(bits));
  }
  return x;
}

struct AccuracyCase {
  MathFunction function;
  float low;
  float high;
  bool negative;
  double ulp;
};

class MathAccuracyTest : public testing::TestWithParam<AccuracyCase> {};

TEST_P(MathAccuracyTest, StaysWithinItsBoundAndHasTheSameBitsEverywhere) {
  const FlushDenormals mode;
  const AccuracyCase& c = GetParam();
  std::vector<float> x = Sweep(c.low, c.high);
  if (c.negative) {
    for (float& value : x) value = -value;
  }
  ASSERT_GT(x.size(), 100000u);
  const std::vector<float> y = Apply(Isa::kScalar, c.function, x);
  double worst = 0;
  float worst_x = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = UlpError(y[i], Truth(c.function, x[i]));
    if (error > worst) {
      worst = error;
      worst_x = x[i];
    }
  }
  EXPECT_LE(worst, c.ulp) << "at " << worst_x;
  RecordProperty("worst_ulp", std::to_string(worst));
  for (const Isa isa : SupportedIsas()) {
    EXPECT_TRUE(SameBytes(Apply(isa, c.function, x), y)) << IsaName(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllFunctions, MathAccuracyTest,
    testing::Values(AccuracyCase{MathFunction::kExp, 0x1p-126f, kExpOverflow, false, 1.02},
                    AccuracyCase{MathFunction::kExp, 0x1p-126f, -kExpUnderflow, true, 1.02},
                    AccuracyCase{MathFunction::kLog, 0x1p-126f, 0x1.fffffep127f, false, 0.9},
                    AccuracyCase{MathFunction::kSilu, 0x1p-120f, 80.0f, false, 3.0},
                    AccuracyCase{MathFunction::kSilu, 0x1p-120f, 80.0f, true, 3.0},
                    AccuracyCase{MathFunction::kRsqrt, 0x1p-126f, 0x1.fffffep127f, false, 1.5}));

struct SpecialCase {
  MathFunction function;
  float x;
  float y;
};

TEST(MathTest, SpecialValuesAreAsDocumented) {
  const FlushDenormals mode;
  const SpecialCase cases[] = {
      {MathFunction::kExp, 0.0f, 1.0f},
      {MathFunction::kExp, -0.0f, 1.0f},
      {MathFunction::kExp, kInfinity, kInfinity},
      {MathFunction::kExp, -kInfinity, 0.0f},
      {MathFunction::kExp, std::nextafter(kExpOverflow, 100.0f), kInfinity},
      {MathFunction::kExp, std::nextafter(kExpUnderflow, -100.0f), 0.0f},
      {MathFunction::kExp, -1e30f, 0.0f},
      {MathFunction::kExp, kNan, kNan},
      {MathFunction::kLog, 1.0f, 0.0f},
      {MathFunction::kLog, 0.0f, -kInfinity},
      {MathFunction::kLog, -0.0f, -kInfinity},
      {MathFunction::kLog, 0x1p-130f, -kInfinity},
      {MathFunction::kLog, -1.0f, kNan},
      {MathFunction::kLog, -kInfinity, kNan},
      {MathFunction::kLog, kInfinity, kInfinity},
      {MathFunction::kLog, kNan, kNan},
      {MathFunction::kSilu, 0.0f, 0.0f},
      {MathFunction::kSilu, 100.0f, 100.0f},
      {MathFunction::kSilu, -100.0f, -0.0f},
      {MathFunction::kSilu, kInfinity, kInfinity},
      {MathFunction::kSilu, -kInfinity, kNan},
      {MathFunction::kRsqrt, 0.0f, kInfinity},
      {MathFunction::kRsqrt, kInfinity, 0.0f},
      {MathFunction::kRsqrt, -1.0f, kNan},
  };
  for (const SpecialCase& c : cases) {
    for (const Isa isa : SupportedIsas()) {
      const float y = Apply(isa, c.function, {c.x})[0];
      if (std::isnan(c.y)) {
        EXPECT_TRUE(std::isnan(y)) << "x = " << c.x << " " << IsaName(isa);
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(y), std::bit_cast<uint32_t>(c.y))
            << "x = " << c.x << " gave " << y << " " << IsaName(isa);
      }
    }
  }
}

TEST(MathTest, AnyPartitionOfAnyLengthGivesTheSameBits) {
  const FlushDenormals mode;
  for (int64_t count = 0; count <= 33; ++count) {
    const std::vector<float> x = RandomFloats(1, count, 20.0f);
    const std::vector<float> y = Apply(Isa::kScalar, MathFunction::kSilu, x);
    for (const Isa isa : SupportedIsas()) {
      for (const Partition partition : kAllPartitions) {
        EXPECT_TRUE(SameBytes(Apply(isa, MathFunction::kSilu, x, partition), y)) << count;
      }
    }
  }
}

TEST(MathTest, TheTreeAddsHalvesFirst) {
  // 2^24 + 1 is not an fp32 number: only the order lane i + lane (i + 8) keeps the small ones.
  float lanes[16] = {};
  lanes[0] = 0x1p24f;
  lanes[8] = -0x1p24f;
  lanes[1] = 1.0f;
  lanes[15] = 1.0f;
  EXPECT_EQ(SumOf16(lanes), 2.0f);
  lanes[8] = 0.0f;
  lanes[4] = -0x1p24f;
  EXPECT_EQ(SumOf16(lanes), 2.0f);
  lanes[4] = 0.0f;
  lanes[1] = 0.0f;
  lanes[15] = 1.0f;
  lanes[9] = -0x1p24f;
  // Lane 15 joins lane 9 before lane 0 does: 2^24 + (1 - 2^24).
  EXPECT_EQ(SumOf16(lanes), 1.0f);
}

}  // namespace
}  // namespace octavo::kernels
