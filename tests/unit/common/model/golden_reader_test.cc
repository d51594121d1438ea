#include "tests/golden/golden_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tensor_type.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;

// Every committed block file agrees with the geometry in common/tensor_type.h.
TEST(GoldenReaderTest, ReadsBlocksOfEveryTensorType) {
  for (TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_0,
        TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ4_K,
        TensorType::kQ5_K, TensorType::kQ6_K}) {
    const TensorTypeTraits traits = TraitsOf(type);
    SCOPED_TRACE(traits.name);
    const GoldenFile golden(std::string(OCTAVO_SOURCE_DIR "/tests/golden/dequantize/") +
                            traits.name + ".golden");
    const size_t blocks = golden.Shape("blocks")[0];
    EXPECT_GE(blocks, 8u);
    EXPECT_THAT(golden.Shape("blocks"), ElementsAre(blocks, traits.block_bytes));
    EXPECT_THAT(golden.Shape("values"), ElementsAre(blocks, traits.block_elements));
    EXPECT_EQ(golden.U8("blocks").size(), blocks * traits.block_bytes);
    EXPECT_EQ(golden.F32("values").size(), blocks * traits.block_elements);
  }
}

TEST(GoldenReaderTest, ReadsValuesByteForByte) {
  const GoldenFile golden(OCTAVO_SOURCE_DIR "/tests/golden/dequantize/F32.golden");
  const std::vector<uint8_t> bytes = golden.U8("blocks");
  const std::vector<float> values = golden.F32("values");
  EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
  EXPECT_FALSE(golden.Has("tokens"));
}

}  // namespace
}  // namespace octavo
