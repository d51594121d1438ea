#include <gtest/gtest.h>

#include "kernels/add.h"
#include "kernels/fp_env.h"
#include "kernels/math.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "op_fixtures.h"

namespace octavo::kernels {
namespace {

struct Shape {
  int64_t row_count;
  int64_t dim;
};
// Odd sizes, one element, an empty batch, less than a register, register edges, a model's own.
constexpr Shape kShapes[] = {{0, 64},   {1, 1},    {1, 7},  {3, 8},  {2, 9},   {1, 15},
                             {5, 16},   {4, 17},   {2, 24}, {3, 31}, {7, 33},  {2, 100},
                             {32, 576}, {3, 1536}, {2, 1},  {1, 63}, {2, 255}, {1, 4096}};

TEST(AddTest, EveryIsaAndPartitionGivesTheSum) {
  const FlushDenormals mode;
  for (const Shape& shape : kShapes) {
    const std::vector<float> a = RandomFloats(1, shape.row_count * shape.dim);
    const std::vector<float> b = RandomFloats(2, shape.row_count * shape.dim);
    std::vector<float> expected(a.size());
    for (size_t i = 0; i < a.size(); ++i) expected[i] = a[i] + b[i];
    for (const Isa isa : SupportedIsas()) {
      for (const Partition partition : kAllPartitions) {
        std::vector<float> sum = a;  // in place
        const AddArgs args{sum.data(), b.data(), sum.data(), shape.row_count, shape.dim};
        RunOp(AddFor(isa), args, AddWorkCount(args), partition);
        EXPECT_TRUE(SameBytes(sum, expected)) << shape.row_count << " x " << shape.dim;
      }
    }
  }
}

std::vector<float> SwiGlu(Isa isa, const Shape& shape, const std::vector<float>& gate_up,
                          Partition partition) {
  std::vector<float> y(static_cast<size_t>(shape.row_count * shape.dim));
  const SwiGluArgs args{.gate = gate_up.data(),
                        .up = gate_up.data() + shape.dim,
                        .input_stride = 2 * shape.dim,
                        .y = y.data(),
                        .output_stride = shape.dim,
                        .row_count = shape.row_count,
                        .dim = shape.dim};
  RunOp(SwiGluFor(isa), args, SwiGluWorkCount(args), partition);
  return y;
}

TEST(SwiGluTest, EveryIsaAndPartitionGivesTheSameBitsNearTheTruth) {
  const FlushDenormals mode;
  for (const Shape& shape : kShapes) {
    const std::vector<float> gate_up = RandomFloats(3, 2 * shape.row_count * shape.dim, 12.0f);
    const std::vector<float> expected = SwiGlu(Isa::kScalar, shape, gate_up, Partition::kOneRange);
    for (int64_t i = 0; i < shape.row_count * shape.dim; ++i) {
      const int64_t at = i / shape.dim * 2 * shape.dim + i % shape.dim;
      const double gate = gate_up[static_cast<size_t>(at)];
      const double up = gate_up[static_cast<size_t>(at + shape.dim)];
      // 3 ulp of silu and half an ulp of the product.
      EXPECT_LE(UlpError(expected[static_cast<size_t>(i)], gate / (1 + std::exp(-gate)) * up), 6.5);
    }
    for (const Isa isa : SupportedIsas()) {
      for (const Partition partition : kAllPartitions) {
        EXPECT_TRUE(SameBytes(SwiGlu(isa, shape, gate_up, partition), expected)) << shape.dim;
      }
    }
  }
}

struct Normed {
  std::vector<float> x;
  std::vector<float> y;
};

Normed RmsNorm(Isa isa, const Shape& shape, std::vector<float> x,
               const std::vector<float>* residual, const std::vector<float>& weight,
               Partition partition = Partition::kOneRange) {
  std::vector<float> y(x.size());
  const RmsNormArgs args{.x = x.data(),
                         .residual = residual == nullptr ? nullptr : residual->data(),
                         .weight = weight.data(),
                         .y = y.data(),
                         .row_count = shape.row_count,
                         .dim = shape.dim,
                         .epsilon = 1e-5f};
  RunOp(RmsNormFor(isa), args, RmsNormWorkCount(args), partition);
  return {std::move(x), std::move(y)};
}

TEST(RmsNormTest, EveryIsaAndPartitionGivesTheSameBits) {
  const FlushDenormals mode;
  for (const Shape& shape : kShapes) {
    const std::vector<float> x = RandomFloats(4, shape.row_count * shape.dim, 3.0f);
    const std::vector<float> residual = RandomFloats(5, shape.row_count * shape.dim);
    const std::vector<float> weight = RandomFloats(6, shape.dim, 2.0f);
    for (const std::vector<float>* r :
         {&residual, static_cast<const std::vector<float>*>(nullptr)}) {
      const Normed expected = RmsNorm(Isa::kScalar, shape, x, r, weight);
      for (const Isa isa : SupportedIsas()) {
        for (const Partition partition : kAllPartitions) {
          const Normed actual = RmsNorm(isa, shape, x, r, weight, partition);
          EXPECT_TRUE(SameBytes(actual.y, expected.y)) << shape.dim << IsaName(isa);
          EXPECT_TRUE(SameBytes(actual.x, expected.x)) << shape.dim << IsaName(isa);
        }
      }
    }
  }
}

TEST(RmsNormTest, StaysNearTheTruth) {
  const FlushDenormals mode;
  for (const Shape& shape : kShapes) {
    const std::vector<float> x = RandomFloats(7, shape.row_count * shape.dim, 3.0f);
    const std::vector<float> weight = RandomFloats(8, shape.dim, 2.0f);
    const Normed normed = RmsNorm(Isa::kScalar, shape, x, nullptr, weight);
    EXPECT_TRUE(SameBytes(normed.x, x));
    // Squares are positive, so the sum's relative error is at most (dim / 16 + 4) roundings, half
    // of it after the root; the rest is a division, an addition, the root, a division and two
    // products.
    const double roundings = (static_cast<double>(shape.dim) / 16 + 6) / 2 + 4;
    for (int64_t row = 0; row < shape.row_count; ++row) {
      double square = 0;
      for (int64_t i = 0; i < shape.dim; ++i) {
        const double value = x[static_cast<size_t>(row * shape.dim + i)];
        square += value * value;
      }
      const double rms = std::sqrt(square / static_cast<double>(shape.dim) + 1e-5f);
      for (int64_t i = 0; i < shape.dim; ++i) {
        const size_t at = static_cast<size_t>(row * shape.dim + i);
        const double truth = x[at] / rms * weight[static_cast<size_t>(i)];
        EXPECT_NEAR(normed.y[at], truth, std::fabs(truth) * roundings * 0x1p-24);
      }
    }
  }
}

TEST(RmsNormTest, TheFusedResidualIsAddFollowedByTheNorm) {
  const FlushDenormals mode;
  const Shape shape{5, 577};
  const std::vector<float> x = RandomFloats(9, shape.row_count * shape.dim);
  const std::vector<float> residual = RandomFloats(10, shape.row_count * shape.dim);
  const std::vector<float> weight = RandomFloats(11, shape.dim);
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> sum(x.size());
    RunOp(AddFor(isa), AddArgs{x.data(), residual.data(), sum.data(), shape.row_count, shape.dim},
          shape.row_count);
    const Normed apart = RmsNorm(isa, shape, sum, nullptr, weight);
    const Normed fused = RmsNorm(isa, shape, x, &residual, weight);
    EXPECT_TRUE(SameBytes(fused.x, sum));
    EXPECT_TRUE(SameBytes(fused.y, apart.y));
  }
}

TEST(RmsNormTest, ARowAloneHasTheBitsItHasInABatch) {
  const FlushDenormals mode;
  const Shape batch{9, 576};
  const std::vector<float> x = RandomFloats(12, batch.row_count * batch.dim);
  const std::vector<float> weight = RandomFloats(13, batch.dim);
  for (const Isa isa : SupportedIsas()) {
    const Normed all = RmsNorm(isa, batch, x, nullptr, weight);
    for (int64_t row = 0; row < batch.row_count; ++row) {
      const std::vector<float> alone(x.begin() + row * batch.dim,
                                     x.begin() + (row + 1) * batch.dim);
      const Normed one = RmsNorm(isa, {1, batch.dim}, alone, nullptr, weight);
      EXPECT_EQ(std::memcmp(one.y.data(), all.y.data() + row * batch.dim,
                            static_cast<size_t>(batch.dim) * sizeof(float)),
                0);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
