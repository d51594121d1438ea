#include "kernels/pack.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/kernels/linear_fixtures.h"

namespace octavo::kernels {
namespace {

int LoadHalfAt(const std::vector<uint8_t>& bytes, size_t at) {
  return bytes[at] | bytes[at + 1] << 8;
}

int Sum(const std::vector<uint8_t>& bytes) {
  int sum = 0;
  for (uint8_t byte : bytes) sum += byte;
  return sum;
}

TEST(PackTest, PanelsHaveTheDocumentedSizes) {
  EXPECT_EQ(PanelBytes(TensorType::kQ4_0, 64), 2u * 288);
  EXPECT_EQ(PanelBytes(TensorType::kQ4_1, 64), 2u * 320);
  EXPECT_EQ(PanelBytes(TensorType::kQ5_0, 64), 2u * 352);
  EXPECT_EQ(PanelBytes(TensorType::kQ5_1, 64), 2u * 384);
  EXPECT_EQ(PanelBytes(TensorType::kQ8_0, 64), 2u * 544);
  EXPECT_EQ(PanelBytes(TensorType::kQ4_K, 512), 2u * (64 + 8 * 288));
  EXPECT_EQ(PanelBytes(TensorType::kQ5_K, 512), 2u * (64 + 8 * 352));
  EXPECT_EQ(PanelBytes(TensorType::kQ6_K, 512), 2u * (32 + 8 * 416));
  EXPECT_EQ(PanelBytes(TensorType::kBF16, 64), 2u * 1024);
  EXPECT_EQ(PanelBytes(TensorType::kF16, 64), 2u * 1024);
  EXPECT_EQ(PanelBytes(TensorType::kF32, 64), 2u * 2048);
  EXPECT_EQ(PackedBytes(TensorType::kQ4_1, 17, 64), 2u * 2 * 320);
  EXPECT_EQ(PackedBytes(TensorType::kQ4_1, 0, 64), 0u);
}

// No type takes more than 4 % above what the file holds, so that the bandwidth floor is the file's.
TEST(PackTest, PackedWeightsAreHardlyLargerThanTheFile) {
  for (TensorType type : kAllTypes) {
    const double stored = 160.0 * static_cast<double>(RowBytes(type, 1024));
    EXPECT_LE(static_cast<double>(PackedBytes(type, 160, 1024)), 1.04 * stored)
        << TraitsOf(type).name;
  }
}

// The place of one code, set alone in a tensor of zeros, for each plane of kernels/pack.h.
TEST(PackTest, CodesStandWhereTheLayoutSays) {
  const auto pack_one = [](TensorType type, std::vector<uint8_t> row, int64_t columns) {
    std::vector<uint8_t> tensor(16 * row.size(), 0);
    std::copy(row.begin(), row.end(), tensor.begin() + static_cast<int64_t>(11 * row.size()));
    const PackedTensor packed(type, tensor, 16, columns);
    return std::vector<uint8_t>(packed.bytes.data(), packed.bytes.data() + packed.bytes.size());
  };
  // Output 11 is in half 1; its lanes are 6 and 7.
  {
    std::vector<uint8_t> row(20,
                             0);  // Q4_1: d, m, then byte j = elements j (low) and j + 16 (high)
    row[0] = 0x34;
    row[1] = 0x12;
    row[2] = 0x78;
    row[3] = 0x56;
    row[4 + 13] = 0x9;  // element 13
    const auto panel = pack_one(TensorType::kQ4_1, row, 32);
    EXPECT_EQ(LoadHalfAt(panel, 2 * 11), 0x1234);       // d
    EXPECT_EQ(LoadHalfAt(panel, 32 + 2 * 11), 0x5678);  // m
    // k = 13 = 8 * 1 + 2 * 2 + 1: row b = 1, bits 8..11, lane 2 * 3 + 1.
    EXPECT_EQ(LoadHalfAt(panel, 64 + 64 * 1 + 32 + 2 * 7), 0x900);
    EXPECT_EQ(Sum(panel), 0x12 + 0x34 + 0x56 + 0x78 + 9);
  }
  {
    std::vector<uint8_t> row(34, 0);
    row[2 + 21] = 0x85;
    const auto panel = pack_one(TensorType::kQ8_0, row, 32);
    EXPECT_EQ(panel[32 + 32 * 10 + 2 * 11 + 1], 0x85);
    EXPECT_EQ(Sum(panel), 0x85);
  }
  {
    std::vector<uint8_t> row(24, 0);  // Q5_1: fifth bit of element 20
    row[4 + 2] = 0x10;
    const auto panel = pack_one(TensorType::kQ5_1, row, 32);
    EXPECT_EQ(LoadHalfAt(panel, 64 + 32 + 2 * 6), 1 << 10);
    EXPECT_EQ(Sum(panel), 4);
  }
}

// One output owns a sixteenth of its panel's bytes; with a single output nothing else may be set,
// whatever the memory held before.
TEST(PackTest, PaddedOutputsAreZero) {
  std::mt19937_64 rng(1);
  for (TensorType type : kAllTypes) {
    const std::vector<uint8_t> tensor = RandomTensor(type, 17, 256, Spread::kTypical, rng);
    const PackedTensor packed(type, tensor, 17, 256);
    const size_t panel = PanelBytes(type, 256);
    const uint8_t* last = packed.bytes.data() + panel;
    EXPECT_LE(std::count_if(last, last + panel, [](uint8_t byte) { return byte != 0; }),
              static_cast<int64_t>(panel / 16))
        << TraitsOf(type).name;
    const std::vector<uint8_t> row(tensor.end() - static_cast<int64_t>(tensor.size() / 17),
                                   tensor.end());
    const PackedTensor alone(type, row, 1, 256);
    EXPECT_EQ(std::memcmp(last, alone.bytes.data(), panel), 0) << TraitsOf(type).name;
  }
}

// A rank's share of a row-parallel product: some columns of every row, by pointer and stride.
TEST(PackTest, AColumnShardIsPackedFromTheWholeTensor) {
  std::mt19937_64 rng(2);
  for (TensorType type : kAllTypes) {
    const int64_t rows = 20, columns = 1024, first = 256, count = 512;
    const std::vector<uint8_t> tensor = RandomTensor(type, rows, columns, Spread::kTypical, rng);
    const size_t row_bytes = RowBytes(type, columns);
    std::vector<uint8_t> shard;
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* begin = tensor.data() + r * row_bytes + RowBytes(type, first);
      shard.insert(shard.end(), begin, begin + RowBytes(type, count));
    }
    const PackedTensor expected(type, shard, rows, count);
    AlignedBytes got(PackedBytes(type, rows, count));
    const PackArgs args{.type = type,
                        .source = tensor.data() + RowBytes(type, first),
                        .source_stride = static_cast<int64_t>(row_bytes),
                        .rows = rows,
                        .columns = count,
                        .packed = got.data()};
    Pack(args, {1, 2});  // panels in any order
    Pack(args, {0, 1});
    EXPECT_EQ(std::memcmp(got.data(), expected.bytes.data(), got.size()), 0) << TraitsOf(type).name;
  }
}

}  // namespace
}  // namespace octavo::kernels
