#include "kernels/fp_env.h"

#include <gtest/gtest.h>

#include <limits>

namespace octavo::kernels {
namespace {

TEST(FlushDenormalsTest, SubnormalsAreZeroInsideItsScopeOnly) {
  volatile float subnormal = std::numeric_limits<float>::denorm_min();
  volatile float smallest = std::numeric_limits<float>::min();
  ASSERT_FALSE(FlushDenormals::IsActive());
  EXPECT_NE(subnormal * 2.0f, 0.0f);
  {
    const FlushDenormals mode;
    EXPECT_TRUE(FlushDenormals::IsActive());
    const float read = subnormal * 0x1p60f;
    const float written = smallest * 0.5f;
    EXPECT_EQ(read, 0.0f);
    EXPECT_EQ(written, 0.0f);
  }
  EXPECT_FALSE(FlushDenormals::IsActive());
  EXPECT_NE(smallest * 0.5f, 0.0f);
}

TEST(FlushDenormalsTest, ScopesNest) {
  const FlushDenormals outer;
  {
    const FlushDenormals inner;
  }
  EXPECT_TRUE(FlushDenormals::IsActive());
}

}  // namespace
}  // namespace octavo::kernels
