#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "kernels/dequantize.h"
#include "op_fixtures.h"

namespace octavo::kernels {
namespace {

TEST(EmbeddingTest, ReturnsTheDequantisedRowOfEveryToken) {
  const int64_t vocabulary = 11;
  const int64_t dim = 64;
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kQ4_1, TensorType::kQ8_0}) {
    std::vector<uint8_t> table(static_cast<size_t>(vocabulary) * RowBytes(type, dim));
    for (size_t i = 0; i < table.size(); ++i) {
      // The second byte of each 16-bit half is kept small, so that scales and values are finite.
      table[i] = static_cast<uint8_t>(RandomBits(1, i, 0) & (i % 2 == 1 ? 0x3bu : 0xffu));
    }
    std::vector<float> rows(static_cast<size_t>(vocabulary * dim));
    const DequantizeArgs all{.type = type,
                             .table = table.data(),
                             .row_count = vocabulary,
                             .columns = dim,
                             .output = rows.data(),
                             .output_stride = dim};
    DequantizeFor(Isa::kScalar)(all, {0, vocabulary});
    for (const std::vector<int32_t>& ids :
         {std::vector<int32_t>{}, {10}, {3, 3, 0, 10, 7, 0, 1, 2, 9}}) {
      std::vector<float> expected;
      for (const int32_t id : ids) {
        expected.insert(expected.end(), rows.begin() + id * dim, rows.begin() + (id + 1) * dim);
      }
      for (const Isa isa : SupportedIsas()) {
        for (const Partition partition : kAllPartitions) {
          std::vector<float> output(expected.size(), -1.0f);
          const EmbeddingArgs args{.type = type,
                                   .table = table.data(),
                                   .token_ids = ids.data(),
                                   .output = output.data(),
                                   .row_count = static_cast<int64_t>(ids.size()),
                                   .dim = dim};
          RunOp(EmbeddingFor(isa), args, EmbeddingWorkCount(args), partition);
          EXPECT_TRUE(SameBytes(output, expected)) << TraitsOf(type).name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
