#include "kernels/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace octavo::kernels {
namespace {

double ValueOfF16(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const double mantissa = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  return exponent == 0 ? sign * std::ldexp(mantissa, -24)
                       : sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

TEST(HalfTest, EveryF16WidensToItsValueAndNarrowsBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float wide = F16ToF32(static_cast<uint16_t>(half));
    if ((half & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(wide), (half & 0x3ff) != 0) << half;
      EXPECT_EQ(std::isinf(wide), (half & 0x3ff) == 0) << half;
      EXPECT_EQ(F32ToF16(wide), (half & 0x3ff) != 0 ? (half | 0x200) : half);
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), ValueOfF16(static_cast<uint16_t>(half))) << half;
    ASSERT_EQ(std::signbit(wide), (half & 0x8000) != 0) << half;
    ASSERT_EQ(F32ToF16(wide), half);
  }
}

// Between two neighbouring halves, everything below the middle goes down, above it up, and the
// middle to the even one.
TEST(HalfTest, NarrowingToF16RoundsToNearestEven) {
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const float low = F16ToF32(static_cast<uint16_t>(half));
    const float high = F16ToF32(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;  // exact: halves have 11 bits
    const uint32_t even = (half & 1) == 0 ? half : half + 1;
    ASSERT_EQ(F32ToF16(middle), even) << half;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, high)), half + 1);
    ASSERT_EQ(F32ToF16(-middle), even | 0x8000);
  }
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7c00);
}

TEST(HalfTest, NarrowingToBf16RoundsToNearestEven) {
  for (uint32_t high = 0; high < 0x7f80; ++high) {
    const float low_value = Bf16ToF32(static_cast<uint16_t>(high));
    ASSERT_EQ(F32ToBf16(low_value), high);
    const uint32_t middle = (high << 16) | 0x8000;
    ASSERT_EQ(F32ToBf16(std::bit_cast<float>(middle)), (high & 1) == 0 ? high : high + 1);
    ASSERT_EQ(F32ToBf16(std::bit_cast<float>(middle - 1)), high);
    ASSERT_EQ(F32ToBf16(std::bit_cast<float>(middle + 1)), high + 1);
  }
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(F32ToBf16(-std::numeric_limits<float>::infinity()), 0xff80);
}

}  // namespace
}  // namespace octavo::kernels
