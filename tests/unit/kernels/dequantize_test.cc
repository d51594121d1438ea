#include "kernels/dequantize.h"

#include <gtest/gtest.h>

#include "tests/golden/golden_reader.h"
#include "tests/unit/kernels/linear_fixtures.h"

namespace octavo::kernels {
namespace {

class DequantizeTest : public ::testing::TestWithParam<std::tuple<TensorType, Isa>> {};

TEST_P(DequantizeTest, GivesTheBitsOfTheGgufPackage) {
  const auto [type, isa] = GetParam();
  const TensorTypeTraits traits = TraitsOf(type);
  const GoldenFile golden(std::string(OCTAVO_SOURCE_DIR "/tests/golden/dequantize/") + traits.name +
                          ".golden");
  const std::vector<uint8_t> blocks = golden.U8("blocks");
  const std::vector<float> expected = golden.F32("values");
  std::vector<float> values(expected.size());
  const DequantizeArgs args{.type = type,
                            .table = blocks.data(),
                            .row_count = 1,
                            .columns = static_cast<int64_t>(expected.size()),
                            .output = values.data(),
                            .output_stride = 0};
  DequantizeFor(isa)(args, {0, DequantizeWorkCount(args)});
  EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)), 0)
      << "first at " << FirstDifference(values, expected);
}

TEST_P(DequantizeTest, LooksUpRowsInAnyOrderAndWritesNothingElse) {
  const auto [type, isa] = GetParam();
  std::mt19937_64 rng(5);
  const int64_t table_rows = 5, columns = 256;
  const std::vector<uint8_t> table = RandomTensor(type, table_rows, columns, Spread::kTypical, rng);
  const std::vector<float> all = Dequantized(type, table, table_rows, columns);
  const std::vector<int32_t> indices = {4, 0, 0, 3};
  const int64_t stride = columns + 3;
  std::vector<float> output(indices.size() * stride, 7.0f);
  const DequantizeArgs args{.type = type,
                            .table = table.data(),
                            .row_indices = indices.data(),
                            .row_count = static_cast<int64_t>(indices.size()),
                            .columns = columns,
                            .output = output.data(),
                            .output_stride = stride};
  DequantizeFor(isa)(args, {1, 4});
  for (int64_t k = 0; k < stride; ++k) ASSERT_EQ(output[k], 7.0f);
  for (size_t i = 1; i < indices.size(); ++i) {
    EXPECT_EQ(std::memcmp(&output[i * stride], &all[indices[i] * columns], columns * sizeof(float)),
              0);
    for (int64_t k = columns; k < stride; ++k) ASSERT_EQ(output[i * stride + k], 7.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantizeTest,
                         ::testing::Combine(::testing::ValuesIn(kAllTypes),
                                            ::testing::ValuesIn(SupportedIsas().begin(),
                                                                SupportedIsas().end())),
                         [](const auto& info) {
                           return std::string(TraitsOf(std::get<0>(info.param)).name) + "_" +
                                  IsaName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace octavo::kernels
