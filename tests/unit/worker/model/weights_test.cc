#include "worker/model/weights.h"

#include "gtest/gtest.h"

namespace octavo {
namespace {

TEST(RowParallelSlicesTest, IsTheLargestPowerOfTwoUpToEightThatDividesTheKvHeads) {
  EXPECT_EQ(RowParallelSlices(1), 1u);
  EXPECT_EQ(RowParallelSlices(2), 2u);
  EXPECT_EQ(RowParallelSlices(3), 1u);
  EXPECT_EQ(RowParallelSlices(4), 4u);
  EXPECT_EQ(RowParallelSlices(8), 8u);
  EXPECT_EQ(RowParallelSlices(10), 2u);
  EXPECT_EQ(RowParallelSlices(12), 4u);
  EXPECT_EQ(RowParallelSlices(32), 8u);
}

}  // namespace
}  // namespace octavo
