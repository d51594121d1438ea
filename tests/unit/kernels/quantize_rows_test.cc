#include "kernels/quantize_rows.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/fp_env.h"
#include "tests/unit/kernels/linear_fixtures.h"

namespace octavo::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class QuantizeRowsTest : public ::testing::TestWithParam<Isa> {
 protected:
  FlushDenormals mode_;
};

struct Shape {
  int64_t rows, dim;
};
constexpr Shape kShapes[] = {{0, 64}, {1, 32}, {1, 576}, {3, 96}, {33, 256}, {7, 1536}};

TEST_P(QuantizeRowsTest, EqualsTheReferenceBitForBit) {
  std::mt19937_64 rng(1);
  for (const Shape& shape : kShapes) {
    for (Spread spread : {Spread::kTypical, Spread::kExtreme}) {
      for (ActivationFormat format :
           {ActivationFormat::kInt16, ActivationFormat::kBf16, ActivationFormat::kF32}) {
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.dim << " " << ActivationFormatName(format));
        const std::vector<float> input = RandomRows(shape.rows, shape.dim, spread, rng);
        const PreparedRows expected(format, input, shape.rows, shape.dim, Isa::kScalar);
        const PreparedRows got(format, input, shape.rows, shape.dim, GetParam());
        ASSERT_EQ(expected.bytes.size(), got.bytes.size());
        EXPECT_EQ(std::memcmp(expected.bytes.data(), got.bytes.data(), got.bytes.size()), 0);
      }
    }
  }
}

TEST_P(QuantizeRowsTest, ARowAloneHasTheBitsItHasInABatch) {
  std::mt19937_64 rng(2);
  const int64_t rows = 9, dim = 160;
  const std::vector<float> input = RandomRows(rows, dim, Spread::kTypical, rng);
  const PreparedRows batch(ActivationFormat::kInt16, input, rows, dim, GetParam());
  for (int64_t r = 0; r < rows; ++r) {
    const PreparedRows alone(ActivationFormat::kInt16, std::span(input).subspan(r * dim, dim), 1,
                             dim, GetParam());
    const QuantizedRows slice = SliceRows(batch.rows, r, 1);
    EXPECT_EQ(slice.row_count, 1);
    EXPECT_EQ(std::memcmp(slice.values, alone.rows.values, dim * sizeof(int16_t)), 0);
    EXPECT_EQ(std::memcmp(slice.scales, alone.rows.scales, dim / 32 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(slice.sums, alone.rows.sums, dim / 32 * sizeof(float)), 0);
  }
}

TEST_P(QuantizeRowsTest, ValuesLieWithinHalfAStepAndReachTheEnds) {
  std::mt19937_64 rng(3);
  const int64_t rows = 50, dim = 320;
  const std::vector<float> input = RandomRows(rows, dim, Spread::kTypical, rng);
  const PreparedRows got(ActivationFormat::kInt16, input, rows, dim, GetParam());
  for (int64_t g = 0; g < rows * dim / 32; ++g) {
    const double scale = got.rows.scales[g];
    int32_t largest = 0, sum = 0;
    for (int64_t k = 32 * g; k < 32 * (g + 1); ++k) {
      const int32_t value = got.rows.values[k];
      // Half a step, and what the fp32 roundings of the scale, its inverse and the product may add
      // at 32767: 3 * 2^-24 of it.
      const double bound = scale * (0.5 + 32767.0 * 3 * 0x1p-24);
      ASSERT_LE(std::abs(input[k] - value * scale), bound) << k;
      largest = std::max(largest, std::abs(value));
      sum += value;
    }
    EXPECT_EQ(largest, 32767);
    EXPECT_EQ(got.rows.sums[g], static_cast<float>(sum) * got.rows.scales[g]);
  }
}

TEST_P(QuantizeRowsTest, TiesGoToTheEvenNeighbour) {
  std::vector<float> input(32, 0.0f);
  input[0] = 32767.0f;  // scale and inverse are 1
  input[1] = 0.5f;
  input[2] = 1.5f;
  input[3] = -2.5f;
  input[4] = -3.5f;
  const PreparedRows got(ActivationFormat::kInt16, input, 1, 32, GetParam());
  EXPECT_EQ(got.rows.scales[0], 1.0f);
  EXPECT_EQ(got.rows.values[1], 0);
  EXPECT_EQ(got.rows.values[2], 2);
  EXPECT_EQ(got.rows.values[3], -2);
  EXPECT_EQ(got.rows.values[4], -4);
}

TEST_P(QuantizeRowsTest, TinyGroupsAreZeroWhateverTheFloatingPointMode) {
  std::vector<float> input(96);
  for (int k = 0; k < 96; ++k)
    input[k] = (k % 2 == 0 ? 1.0f : -1.0f) * (k < 32   ? 0x1.fffp-97f
                                              : k < 64 ? 0x1p-140f
                                                       : 0x1p-96f);
  const PreparedRows got(ActivationFormat::kInt16, input, 1, 96, GetParam());
  for (int k = 0; k < 64; ++k) EXPECT_EQ(got.rows.values[k], 0);
  EXPECT_EQ(got.rows.scales[0], 0.0f);
  EXPECT_EQ(got.rows.sums[1], 0.0f);
  EXPECT_GT(got.rows.scales[2], 0.0f);
  EXPECT_EQ(got.rows.values[64], 32767);
  EXPECT_EQ(got.rows.values[65], -32767);
}

TEST_P(QuantizeRowsTest, ANonFiniteValueMakesItsGroupNanAndNoOther) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const int at : {0, 31, 17}) {
      std::vector<float> input(96, 1.0f);
      input[32 + at] = bad;
      const PreparedRows got(ActivationFormat::kInt16, input, 1, 96, GetParam());
      EXPECT_TRUE(std::isnan(got.rows.scales[1]));
      EXPECT_TRUE(std::isnan(got.rows.sums[1]));
      for (int k = 32; k < 64; ++k) EXPECT_EQ(got.rows.values[k], 0);
      EXPECT_EQ(got.rows.scales[0], 1.0f / 32767.0f);
      EXPECT_EQ(got.rows.scales[2], 1.0f / 32767.0f);
    }
  }
}

TEST_P(QuantizeRowsTest, Bf16KeepsNonFiniteValuesAndRoundsToEven) {
  std::vector<float> input(32, 0.0f);
  input[0] = kNan;
  input[1] = -kInfinity;
  input[2] = std::bit_cast<float>(0x3f808000u);  // halfway between 0x3f80 and 0x3f81
  input[3] = std::bit_cast<float>(0x3f818000u);
  input[4] = std::numeric_limits<float>::max();
  input[5] = -0.0f;
  input[6] = std::bit_cast<float>(0xff800001u);  // a signalling NaN whose payload bf16 would drop
  const PreparedRows got(ActivationFormat::kBf16, input, 1, 32, GetParam());
  EXPECT_TRUE(std::isnan(Bf16ToF32(got.rows.bf16[0])));
  EXPECT_EQ(got.rows.bf16[1], 0xff80);
  EXPECT_EQ(got.rows.bf16[2], 0x3f80);
  EXPECT_EQ(got.rows.bf16[3], 0x3f82);
  EXPECT_EQ(got.rows.bf16[4], 0x7f80);
  EXPECT_EQ(got.rows.bf16[5], 0x8000);
  EXPECT_TRUE(std::isnan(Bf16ToF32(got.rows.bf16[6])));
}

TEST_P(QuantizeRowsTest, F32RowsMayStandForThemselves) {
  std::mt19937_64 rng(4);
  std::vector<float> input = RandomRows(2, 64, Spread::kTypical, rng);
  const std::vector<float> before = input;
  const QuantizeRowsArgs args{.input = input.data(),
                              .input_stride = 64,
                              .output = LayOutRows(ActivationFormat::kF32, input.data(), 2, 64)};
  QuantizeRowsFor(GetParam())(args, {0, 2});
  EXPECT_EQ(input, before);
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantizeRowsTest,
                         ::testing::ValuesIn(SupportedIsas().begin(), SupportedIsas().end()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace octavo::kernels
