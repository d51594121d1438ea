#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/fp_env.h"
#include "tests/unit/kernels/linear_fixtures.h"

namespace octavo::kernels {
namespace {

struct Shape {
  int64_t outputs, columns;
};

std::vector<Shape> ShapesFor(TensorType type) {
  if (PackUnit(type) == 256) return {{16, 256}, {1, 512}, {17, 768}, {40, 2048}};
  return {{16, 32}, {1, 64}, {15, 96}, {17, 576}, {48, 1536}, {100, 320}};
}

constexpr int64_t kRowCounts[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 33, 64, 65, 130};

class LinearTest : public ::testing::TestWithParam<std::tuple<TensorType, Isa>> {
 protected:
  TensorType type() const { return std::get<0>(GetParam()); }
  Isa isa() const { return std::get<1>(GetParam()); }

  static std::vector<float> Multiply(Isa isa, const PackedMatrix& weights,
                                     const QuantizedRows& rows, int slice_count = 1) {
    std::vector<float> output(static_cast<size_t>(rows.row_count * weights.rows), 1e30f);
    const LinearArgs args{.weights = weights,
                          .activations = rows,
                          .output = output.data(),
                          .output_stride = weights.rows,
                          .slice_count = slice_count};
    LinearFor(isa)(args, {0, LinearWorkCount(args)});
    return output;
  }

  FlushDenormals mode_;
};

TEST_P(LinearTest, EqualsTheReferenceBitForBit) {
  std::mt19937_64 rng(1);
  for (const Shape& shape : ShapesFor(type())) {
    for (Spread spread : {Spread::kTypical, Spread::kExtreme}) {
      const std::vector<uint8_t> tensor =
          RandomTensor(type(), shape.outputs, shape.columns, spread, rng);
      const PackedTensor packed(type(), tensor, shape.outputs, shape.columns);
      for (int64_t rows : kRowCounts) {
        const PreparedRows x(ActivationFormatFor(type()),
                             RandomRows(rows, shape.columns, spread, rng), rows, shape.columns);
        for (int slices = 1; slices <= SliceCountFor(type(), shape.columns, 8); slices *= 2) {
          const auto expected = Multiply(Isa::kScalar, packed.matrix, x.rows, slices);
          const auto got = Multiply(isa(), packed.matrix, x.rows, slices);
          ASSERT_EQ(FirstDifference(got, expected), -1)
              << shape.outputs << " x " << shape.columns << ", rows " << rows << ", slices "
              << slices << (spread == Spread::kExtreme ? ", extreme" : "");
        }
      }
    }
  }
}

TEST_P(LinearTest, ARowAloneHasTheBitsItHasInAnyBatch) {
  std::mt19937_64 rng(2);
  const int64_t outputs = 33, columns = 1024, rows = 131;
  const PackedTensor packed(type(), RandomTensor(type(), outputs, columns, Spread::kTypical, rng),
                            outputs, columns);
  const PreparedRows x(ActivationFormatFor(type()),
                       RandomRows(rows, columns, Spread::kTypical, rng), rows, columns);
  const std::vector<float> all = Multiply(isa(), packed.matrix, x.rows, 4);
  for (int64_t count : {1, 2, 3, 5, 9, 66}) {
    for (int64_t begin = 0; begin + count <= rows; begin += 13) {
      const auto some = Multiply(isa(), packed.matrix, SliceRows(x.rows, begin, count), 4);
      ASSERT_EQ(std::memcmp(some.data(), &all[begin * outputs], some.size() * sizeof(float)), 0)
          << "rows " << begin << " to " << begin + count;
    }
  }
}

TEST_P(LinearTest, WorkItemsMayComeInAnyOrderAndWriteOnlyTheirOwn) {
  std::mt19937_64 rng(3);
  const int64_t outputs = 39, columns = 512, rows = 70, stride = outputs + 5;
  const PackedTensor packed(type(), RandomTensor(type(), outputs, columns, Spread::kTypical, rng),
                            outputs, columns);
  const PreparedRows x(ActivationFormatFor(type()),
                       RandomRows(rows, columns, Spread::kTypical, rng), rows, columns);
  const std::vector<float> expected = Multiply(isa(), packed.matrix, x.rows);
  constexpr float kUntouched = -12345.0f;
  std::vector<float> output(static_cast<size_t>(rows * stride), kUntouched);
  const LinearArgs args{.weights = packed.matrix,
                        .activations = x.rows,
                        .output = output.data(),
                        .output_stride = stride};
  const int64_t items = LinearWorkCount(args);
  ASSERT_EQ(items, 3 * 2);
  for (int64_t i = items - 1; i >= 0; --i) LinearFor(isa())(args, {i, i + 1});
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_EQ(std::memcmp(&output[r * stride], &expected[r * outputs], outputs * sizeof(float)), 0);
    for (int64_t n = outputs; n < stride; ++n) ASSERT_EQ(output[r * stride + n], kUntouched);
  }
}

// Against exact products of what the operands stand for. With u = 2^-24 and A the sum of the
// absolute values of all terms, the code and the minimum counted apart: products and scales are
// rounded at most 3 times, each of at most 2 K / 32 additions (K for F16 and F32, 17 a group for
// BF16) rounds a value of at most A (1 + small), and the tree of slices 3 more.
TEST_P(LinearTest, StaysWithinTheRoundingBoundOfTheExactProduct) {
  std::mt19937_64 rng(4);
  for (const Shape& shape : ShapesFor(type())) {
    const int64_t rows = 9, columns = shape.columns, outputs = shape.outputs;
    const auto tensor = RandomTensor(type(), outputs, columns, Spread::kTypical, rng);
    const std::vector<float> w = Dequantized(type(), tensor, outputs, columns);
    const PackedTensor packed(type(), tensor, outputs, columns);
    const ActivationFormat format = ActivationFormatFor(type());
    const std::vector<float> input = RandomRows(rows, columns, Spread::kTypical, rng);
    const PreparedRows x(format, input, rows, columns);
    const std::vector<float> y =
        Multiply(isa(), packed.matrix, x.rows, SliceCountFor(type(), columns, 8));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < outputs; ++n) {
        double exact = 0, magnitude = 0;
        for (int64_t k = 0; k < columns; ++k) {
          const int64_t at = r * columns + k;
          const double value = format == ActivationFormat::kInt16
                                   ? x.rows.values[at] * static_cast<double>(x.rows.scales[at / 32])
                               : format == ActivationFormat::kBf16 ? Bf16ToF32(x.rows.bf16[at])
                                                                   : x.rows.f32[at];
          exact += value * w[n * columns + k];
          // |code| * d + |m| <= 3 * (largest |w| of the unit), since some code may be at either
          // end: taken over the row.
          magnitude += std::abs(value);
        }
        double largest = 0;
        for (int64_t k = 0; k < columns; ++k) {
          largest = std::max(largest, std::abs(static_cast<double>(w[n * columns + k])));
        }
        const double terms = format == ActivationFormat::kInt16  ? 2.0 * columns / 32 + 3
                             : format == ActivationFormat::kBf16 ? 18.0 * columns / 32
                                                                 : columns;
        const double parts = format == ActivationFormat::kInt16 ? 64.0 : 1.0;
        const double bound = (terms + 6) * 0x1p-24 * magnitude * largest * (parts > 1 ? 3 : 1);
        ASSERT_LE(std::abs(y[r * outputs + n] - exact), bound)
            << "row " << r << " output " << n << " of " << outputs << " x " << columns;
      }
    }
  }
}

TEST_P(LinearTest, ANonFiniteActivationReachesEveryOutputOfItsRowAndNoOther) {
  std::mt19937_64 rng(5);
  const int64_t outputs = 20, columns = 512, rows = 6;
  const PackedTensor packed(type(), RandomTensor(type(), outputs, columns, Spread::kTypical, rng),
                            outputs, columns);
  std::vector<float> input = RandomRows(rows, columns, Spread::kTypical, rng);
  const ActivationFormat format = ActivationFormatFor(type());
  const PreparedRows clean(format, input, rows, columns);
  input[2 * columns + 77] = std::numeric_limits<float>::quiet_NaN();
  const PreparedRows dirty(format, input, rows, columns);
  const std::vector<float> expected = Multiply(isa(), packed.matrix, clean.rows);
  const std::vector<float> got = Multiply(isa(), packed.matrix, dirty.rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < outputs; ++n) {
      if (r == 2) {
        EXPECT_TRUE(std::isnan(got[r * outputs + n])) << n;
      } else {
        EXPECT_EQ(got[r * outputs + n], expected[r * outputs + n]);
      }
    }
  }
}

// The largest sums there are: every code and every activation at its end.
TEST_P(LinearTest, TheLargestSumsFitInThirtyTwoBits) {
  if (ActivationFormatFor(type()) != ActivationFormat::kInt16) {
    const std::vector<float> none = Multiply(isa(), {.type = type(), .columns = 32}, {});
    EXPECT_TRUE(
        none.empty());  // these have no integer sums: an empty matrix is all there is to multiply
    return;
  }
  const TensorTypeTraits traits = TraitsOf(type());
  const int64_t columns = 256;
  for (const uint8_t fill : {0x00, 0xff, 0x80, 0x7f}) {
    std::vector<uint8_t> tensor(RowBytes(type(), columns), fill);
    for (size_t at = 0; at < tensor.size(); at += traits.block_bytes) {
      const uint16_t one = F32ToF16(1.0f);
      if (type() == TensorType::kQ6_K) {
        std::memset(&tensor[at + 192], 0x80, 16);  // scales of -128
        std::memcpy(&tensor[at + 208], &one, 2);
      } else {
        std::memcpy(&tensor[at], &one, 2);
        if (PackUnit(type()) == 256 || type() == TensorType::kQ4_1 || type() == TensorType::kQ5_1) {
          std::memset(&tensor[at + 2], 0, 2);
        }
      }
    }
    const std::vector<float> w = Dequantized(type(), tensor, 1, columns);
    const PackedTensor packed(type(), tensor, 1, columns);
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> input(columns, sign * 32767.0f);
      const PreparedRows x(ActivationFormat::kInt16, input, 1, columns);
      double exact = 0;
      for (int64_t k = 0; k < columns; ++k) exact += static_cast<double>(w[k]) * input[k];
      const float got = Multiply(isa(), packed.matrix, x.rows)[0];
      EXPECT_NEAR(got, exact, std::abs(exact) * 20 * 0x1p-24) << "codes " << int{fill};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes),
                                            ::testing::ValuesIn(SupportedIsas().begin(),
                                                                SupportedIsas().end())),
                         [](const auto& info) {
                           return std::string(TraitsOf(std::get<0>(info.param)).name) + "_" +
                                  IsaName(std::get<1>(info.param));
                         });

TEST(SliceCountTest, IsTheLargestPowerOfTwoThatKeepsUnitsWhole) {
  EXPECT_EQ(SliceCountFor(TensorType::kQ4_1, 576, 1), 1);
  EXPECT_EQ(SliceCountFor(TensorType::kQ4_1, 576, 2), 2);  // 288 = 9 * 32
  EXPECT_EQ(SliceCountFor(TensorType::kQ4_1, 576, 8), 2);
  EXPECT_EQ(SliceCountFor(TensorType::kQ4_1, 1536, 3), 2);
  EXPECT_EQ(SliceCountFor(TensorType::kQ4_K, 14336, 8), 8);
  EXPECT_EQ(SliceCountFor(TensorType::kQ4_K, 1536, 8), 2);
  EXPECT_EQ(SliceCountFor(TensorType::kF32, 32, 8), 1);
  EXPECT_EQ(SliceCountFor(TensorType::kQ8_0, 4096, 100), 8);
}

}  // namespace
}  // namespace octavo::kernels
