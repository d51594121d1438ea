#include "common/byte_size.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(ByteSizeTest, ReadsNumbersWithAndWithoutUnits) {
  EXPECT_EQ(ParseByteSize("4096")->bytes, 4096u);
  EXPECT_EQ(ParseByteSize("80GiB")->bytes, 80ull << 30);
  EXPECT_EQ(ParseByteSize("1.5 gib")->bytes, 3ull << 29);
  EXPECT_EQ(ParseByteSize("512MB")->bytes, 512'000'000u);
  EXPECT_EQ(ParseByteSize("8192TiB")->bytes, 1ull << 53);
  for (const char* text : {"", "GiB", "-1", "1e9", "80 GiBs", "1.2.3", "8193TiB", "0x10"}) {
    EXPECT_EQ(ParseByteSize(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ByteSizeTest, PrintsTheLargestUnit) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(5ull << 29), "2.50 GiB");
}

}  // namespace
}  // namespace octavo
