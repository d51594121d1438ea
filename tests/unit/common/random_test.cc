#include "common/random.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(RandomTest, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, UniformIsNeverZeroOrOne) {
  for (uint64_t position = 0; position < 100'000; ++position) {
    const float u = RandomUniform(7, position, 0);
    ASSERT_GT(u, 0.0f);
    ASSERT_LT(u, 1.0f);
  }
}

TEST(RandomTest, DrawsOfOnePositionDiffer) {
  EXPECT_NE(RandomBits(1, 2, 0), RandomBits(1, 2, 1));
  EXPECT_NE(RandomBits(1, 2, 3), RandomBits(1, 2, 4));
  EXPECT_NE(RandomBits(1, 2, 0), RandomBits(1, 3, 0));
  EXPECT_NE(RandomBits(1, 2, 0), RandomBits(2, 2, 0));
}

}  // namespace
}  // namespace octavo
