#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/fp_env.h"
#include "kernels/reference/stored_blocks.h"
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

constexpr int64_t kRowCounts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 64, 70};
constexpr int64_t kMostRows = 70;

// The tensor as the file holds it, group by group: what the formulas of kernels/linear.h speak of.
// Knows nothing of packing.
struct StoredMatrix {
  struct Group {
    int32_t codes[32];      // offsets taken off
    int32_t half_scale[2];  // Q6_K
    float scale;
    float min;
  };

  TensorType type;
  int64_t outputs, columns;
  std::vector<Group> groups;   // quantised types: [outputs, columns / 32]
  std::vector<float> weights;  // the others: [outputs, columns]

  StoredMatrix(TensorType type, const std::vector<uint8_t>& tensor, int64_t outputs,
               int64_t columns)
      : type(type), outputs(outputs), columns(columns) {
    if (ActivationFormatFor(type) != ActivationFormat::kInt16) {
      weights = Dequantized(type, tensor, outputs, columns);
      return;
    }
    const TensorTypeTraits traits = TraitsOf(type);
    for (size_t at = 0; at < tensor.size(); at += traits.block_bytes) {
      for (int g = 0; g < static_cast<int>(traits.block_elements / 32); ++g) {
        groups.push_back(Read(tensor.data() + at, g));
      }
    }
  }

  bool has_min() const {
    return type == TensorType::kQ4_1 || type == TensorType::kQ5_1 || type == TensorType::kQ4_K ||
           type == TensorType::kQ5_K;
  }

 private:
  Group Read(const uint8_t* block, int g) const {
    int8_t codes[32];
    LoadCodes(type, block, g, codes);
    Group group{};
    const int offset = type == TensorType::kQ4_0   ? 8
                       : type == TensorType::kQ5_0 ? 16
                       : type == TensorType::kQ6_K ? 32
                                                   : 0;
    for (int k = 0; k < 32; ++k) group.codes[k] = codes[k] - offset;
    const bool is_q6 = type == TensorType::kQ6_K;
    group.scale = F16ToF32(LoadU16(is_q6 ? block + kQ6_KDeltaAt : block));
    if (is_q6) {
      for (int h = 0; h < 2; ++h) {
        group.half_scale[h] = static_cast<int8_t>(block[kQ6_KScalesAt + 2 * g + h]);
      }
    }
    if (has_min()) group.min = F16ToF32(LoadU16(block + 2));
    if (type == TensorType::kQ4_K || type == TensorType::kQ5_K) {
      uint8_t scale = 0, min = 0;
      LoadScaleAndMin(block + kKScalesAt, g, &scale, &min);
      group.scale *= scale;
      group.min = -(group.min * min);
    }
    return group;
  }
};

// One output over the columns [k0, k1), word for word as kernels/linear.h has it.
float SliceByFormula(const StoredMatrix& w, const QuantizedRows& x, int64_t r, int64_t n,
                     int64_t k0, int64_t k1) {
  float acc = 0.0f;
  switch (x.format) {
    case ActivationFormat::kInt16:
      for (int64_t g = k0 / 32; g < k1 / 32; ++g) {
        const StoredMatrix::Group& group = w.groups[n * (w.columns / 32) + g];
        const int16_t* values = x.values + r * x.dim + 32 * g;
        const float s = x.scales[r * (x.dim / 32) + g];
        int64_t h[2] = {0, 0};
        for (int k = 0; k < 32; ++k) h[k / 16] += int64_t{group.codes[k]} * values[k];
        float p = static_cast<float>(h[0] + h[1]);
        if (w.type == TensorType::kQ6_K) {
          p = static_cast<float>(h[0] * group.half_scale[0]) +
              static_cast<float>(h[1] * group.half_scale[1]);
        }
        acc = std::fma(p, group.scale * s, acc);
        if (w.has_min()) acc = std::fma(group.min, x.sums[r * (x.dim / 32) + g], acc);
      }
      return acc;
    case ActivationFormat::kBf16:
      for (int64_t k = k0; k < k1; k += 32) {
        float even = 0.0f, odd = 0.0f;
        for (int64_t i = k; i < k + 32; i += 2) {
          const uint16_t* row = x.bf16 + r * x.dim;
          even = std::fma(w.weights[n * w.columns + i], Bf16ToF32(row[i]), even);
          odd = std::fma(w.weights[n * w.columns + i + 1], Bf16ToF32(row[i + 1]), odd);
        }
        acc = acc + (even + odd);
      }
      return acc;
    case ActivationFormat::kF32:
      for (int64_t k = k0; k < k1; ++k) {
        acc = std::fma(w.weights[n * w.columns + k], x.f32[r * x.dim + k], acc);
      }
      return acc;
  }
  return acc;
}

// [row_count, outputs] by the formula, the slices added level by level.
std::vector<float> ByFormula(const StoredMatrix& w, const QuantizedRows& x, int slice_count) {
  std::vector<float> y;
  const int64_t step = w.columns / slice_count;
  for (int64_t r = 0; r < x.row_count; ++r) {
    for (int64_t n = 0; n < w.outputs; ++n) {
      std::vector<float> parts;
      for (int64_t k = 0; k < w.columns; k += step) {
        parts.push_back(SliceByFormula(w, x, r, n, k, k + step));
      }
      for (; parts.size() > 1; parts.resize(parts.size() / 2)) {
        for (size_t i = 0; i + 1 < parts.size(); i += 2) parts[i / 2] = parts[i] + parts[i + 1];
      }
      y.push_back(parts[0]);
    }
  }
  return y;
}

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

TEST_P(LinearTest, ComputesTheDocumentedFormulaBitForBit) {
  std::mt19937_64 rng(1);
  for (const Shape& shape : ShapesFor(type())) {
    for (Spread spread : {Spread::kTypical, Spread::kExtreme}) {
      const std::vector<uint8_t> tensor =
          RandomTensor(type(), shape.outputs, shape.columns, spread, rng);
      const StoredMatrix stored(type(), tensor, shape.outputs, shape.columns);
      const PackedTensor packed(type(), tensor, shape.outputs, shape.columns);
      const PreparedRows x(ActivationFormatFor(type()),
                           RandomRows(kMostRows, shape.columns, spread, rng), kMostRows,
                           shape.columns);
      for (int slices = 1; slices <= SliceCountFor(type(), shape.columns, 8); slices *= 2) {
        const std::vector<float> expected = ByFormula(stored, x.rows, slices);
        for (int64_t rows : kRowCounts) {
          const auto got = Multiply(isa(), packed.matrix, SliceRows(x.rows, 0, rows), slices);
          ASSERT_EQ(FirstDifference(got, std::span(expected).first(got.size())), -1)
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

// Against the exact product of what the operands stand for. With u = 2^-24 and A the sum of the
// absolute values of all terms (codes and minima apart): a term carries at most 4 roundings before
// it is added (sum, scale, their halves in Q6_K), and after that no more than one for each addition
// that follows it: 2 a group, 18 a group for BF16, 1 an input for F16 and F32, and 3 levels of
// slices.
TEST_P(LinearTest, StaysWithinTheRoundingBoundOfTheExactProduct) {
  std::mt19937_64 rng(4);
  for (const Shape& shape : ShapesFor(type())) {
    const int64_t rows = 9, columns = shape.columns, outputs = shape.outputs;
    const auto tensor = RandomTensor(type(), outputs, columns, Spread::kTypical, rng);
    const std::vector<float> w = Dequantized(type(), tensor, outputs, columns);
    const StoredMatrix stored(type(), tensor, outputs, columns);
    const PackedTensor packed(type(), tensor, outputs, columns);
    const ActivationFormat format = ActivationFormatFor(type());
    const PreparedRows x(format, RandomRows(rows, columns, Spread::kTypical, rng), rows, columns);
    const std::vector<float> y =
        Multiply(isa(), packed.matrix, x.rows, SliceCountFor(type(), columns, 8));
    const double additions = format == ActivationFormat::kInt16  ? 2.0 * columns / 32
                             : format == ActivationFormat::kBf16 ? 16 + 2.0 * columns / 32
                                                                 : columns;
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
          double weight = std::abs(w[n * columns + k]);
          if (stored.has_min()) {
            const StoredMatrix::Group& group = stored.groups[(n * columns + k) / 32];
            weight = std::abs(static_cast<double>(group.scale) * group.codes[k % 32]) +
                     std::abs(group.min);
          }
          magnitude += std::abs(value) * weight;
        }
        // 2^-24 more than needed covers products of roundings and those of the exact sum itself.
        const double bound = (additions + 4 + 3 + 1) * 0x1p-24 * magnitude;
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
