#include "common/kv_layout.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(KvLayoutTest, CountsTheBytesOfSmolLm2) {
  const KvLayout layout{.block_size = 16, .layer_count = 30, .kv_head_count = 3, .head_dim = 64};
  EXPECT_EQ(layout.bytes_per_token(), 23'040u);
  EXPECT_EQ(layout.bytes_per_block(), 16u * 23'040u);
}

TEST(KvLayoutTest, RoundsTokensUpToBlocks) {
  const KvLayout layout{.block_size = 3, .layer_count = 1, .kv_head_count = 1, .head_dim = 1};
  EXPECT_EQ(layout.BlocksFor(0), 0u);
  EXPECT_EQ(layout.BlocksFor(1), 1u);
  EXPECT_EQ(layout.BlocksFor(3), 1u);
  EXPECT_EQ(layout.BlocksFor(4), 2u);
}

TEST(KvLayoutTest, RefusesABlockSizeOutOfRangeWithTheLimit) {
  KvLayout layout{.block_size = 257, .layer_count = 1, .kv_head_count = 1, .head_dim = 1};
  EXPECT_EQ(layout.Validate().message(), "block_size is 257; it must be 1 to 256");
}

TEST(KvLayoutTest, FingerprintTellsLayoutsApart) {
  const KvLayout a{.block_size = 16, .layer_count = 30, .kv_head_count = 3, .head_dim = 64};
  KvLayout b = a;
  EXPECT_EQ(a.Fingerprint(), b.Fingerprint());
  b.kv_type = KvType::kBF16;
  EXPECT_NE(a.Fingerprint(), b.Fingerprint());
}

}  // namespace
}  // namespace octavo
