#include "scheduler/core/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSeed = 4711;

// What a lookup finds, as block ids.
std::vector<uint32_t> Find(const PrefixIndex& index, const std::vector<TokenId>& tokens,
                           const std::string& scope = "") {
  std::vector<BlockId> blocks;
  index.Find(tokens, scope, blocks);
  std::vector<uint32_t> ids;
  for (const BlockId block : blocks) ids.push_back(block.value());
  return ids;
}

// Indexes whole blocks of `tokens` as blocks first, first + 1, …
void Insert(PrefixIndex& index, const std::vector<TokenId>& tokens, uint32_t first,
            const std::string& scope = "", uint32_t block_size = 3) {
  PrefixNode node;
  for (uint32_t i = 0; (i + 1) * block_size <= tokens.size(); ++i) {
    node = index.Insert(BlockId(first + i), scope, node,
                        std::span(tokens).subspan(i * block_size, block_size), StepNumber(1));
  }
}

TEST(PrefixIndexTest, ALookupWalksDownToTheFirstBlockThatDiffers) {
  PrefixIndex index(10, 3, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5, 6, 7, 8}, 0);
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5, 6, 7, 8}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 1));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 9, 5, 6, 7, 8}), ElementsAre(0));
  EXPECT_THAT(Find(index, {3, 4, 5}), ElementsAre());
}

// Scenario row 11: the salt is part of the first block's key only, and whoever follows the first
// block has it.
TEST(PrefixIndexTest, ScopesKeepEqualTokensApart) {
  PrefixIndex index(10, 3, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5}, 0, "salt");
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}, "salt"), ElementsAre(0, 1));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}, "other"), ElementsAre());
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}), ElementsAre());
  Insert(index, {0, 1, 2, 3, 4, 5}, 4);
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}), ElementsAre(4, 5));
  EXPECT_EQ(index.scope_count(), 2u);
}

TEST(PrefixIndexTest, AScopeIsForgottenWithItsLastBlock) {
  PrefixIndex index(4, 3, kSeed);
  Insert(index, {0, 1, 2}, 0, "salt");
  Insert(index, {5, 6, 7}, 1, "salt");
  index.Remove(BlockId(0));
  EXPECT_EQ(index.scope_count(), 1u);
  index.Remove(BlockId(1));
  EXPECT_EQ(index.scope_count(), 0u);
  EXPECT_EQ(index.block_count(), 0u);
}

TEST(PrefixIndexTest, ATwinIsFoundWhenTheFirstIsEvicted) {
  PrefixIndex index(10, 3, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5}, 0);
  Insert(index, {0, 1, 2, 3, 4, 5}, 4);
  EXPECT_EQ(index.block_count(), 4u);
  EXPECT_EQ(index.prefix_count(), 2u);
  EXPECT_EQ(index.NodeOf(BlockId(1)), index.NodeOf(BlockId(5)));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}), ElementsAre(0, 1));
  index.Remove(BlockId(0));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}), ElementsAre(4, 1));
  EXPECT_EQ(index.ParentOf(BlockId(1)), BlockId(4));
  EXPECT_TRUE(index.CheckInvariants().ok()) << index.CheckInvariants();
}

TEST(PrefixIndexTest, KeysDependOnTheSeed) {
  PrefixIndex one(2, 3, 1);
  PrefixIndex other(2, 3, 2);
  Insert(one, {0, 1, 2}, 0);
  Insert(other, {0, 1, 2}, 0);
  EXPECT_NE(PrefixKeyHex(one.NodeOf(BlockId(0)).key), PrefixKeyHex(other.NodeOf(BlockId(0)).key));
  EXPECT_EQ(PrefixKeyHex(one.NodeOf(BlockId(0)).key).size(), 32u);
}

TEST(PrefixIndexTest, AnOrphanIsReported) {
  PrefixIndex index(4, 3, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5}, 0);
  index.Remove(BlockId(0));
  EXPECT_THAT(std::string(index.CheckInvariants().message()),
              testing::HasSubstr("indexed block 1: its parent is not indexed"));
}

// Prefixes as whole token lists, so no hash and no chain. With the hash cut to a few bits nearly
// every key collides, and the stored tokens alone must keep prefixes apart.
class PrefixIndexModelTest : public testing::TestWithParam<uint32_t> {};

TEST_P(PrefixIndexModelTest, RandomOperationsAgreeWithWholeTokenLists) {
  std::mt19937_64 random(7 + GetParam());
  for (const uint32_t block_size : {1u, 2u, 3u, 16u}) {
    constexpr uint32_t kCapacity = 40;
    PrefixIndex index(kCapacity, block_size, random(), GetParam());
    std::map<std::pair<std::string, std::vector<TokenId>>, std::vector<uint32_t>> model;
    std::map<uint32_t, std::pair<std::string, std::vector<TokenId>>> content;
    const auto walk = [&](const std::string& scope, const std::vector<TokenId>& tokens) {
      std::vector<uint32_t> found;
      for (uint32_t end = block_size; end <= tokens.size(); end += block_size) {
        const auto it = model.find({scope, {tokens.begin(), tokens.begin() + end}});
        if (it == model.end()) break;
        found.push_back(it->second.front());
      }
      return found;
    };
    for (int step = 0; step < 8000; ++step) {
      const std::string scope = random() % 3 == 0 ? "x" : "";
      std::vector<TokenId> tokens(block_size * (1 + random() % 5));
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
      if (block_size == 16) std::fill(tokens.begin(), tokens.end() - 1, 1);
      std::vector<BlockId> blocks;
      PrefixNode node = index.Find(tokens, scope, blocks);
      ASSERT_EQ(Find(index, tokens, scope), walk(scope, tokens));
      if (random() % 2 == 0) {
        // The next block of the walk, or a twin of its last.
        uint32_t depth = static_cast<uint32_t>(blocks.size());
        if (random() % 3 == 0 && depth > 0) {
          --depth;
          blocks.clear();
          node = index.Find(std::span(tokens).first(depth * block_size), scope, blocks);
        }
        const auto block = static_cast<uint32_t>(random() % kCapacity);
        if (index.Contains(BlockId(block)) || (depth + 1) * block_size > tokens.size()) continue;
        index.Insert(BlockId(block), scope, node,
                     std::span(tokens).subspan(depth * block_size, block_size), StepNumber(1));
        content[block] = {scope, {tokens.begin(), tokens.begin() + (depth + 1) * block_size}};
        auto& twins = model[content[block]];
        twins.insert(twins.begin() + (twins.empty() ? 0 : 1), block);
      } else if (!content.empty()) {
        // Evict somebody without children, as the pool's order does.
        auto victim = std::next(content.begin(), static_cast<int64_t>(random() % content.size()));
        const auto& [victim_scope, victim_tokens] = victim->second;
        bool parent = false;
        for (const auto& [key, twins] : model) {
          parent |= key.first == victim_scope && key.second.size() > victim_tokens.size() &&
                    std::equal(victim_tokens.begin(), victim_tokens.end(), key.second.begin());
        }
        auto& twins = model.at(victim->second);
        if (parent && twins.size() == 1) continue;
        index.Remove(BlockId(victim->first));
        twins.erase(std::find(twins.begin(), twins.end(), victim->first));
        if (twins.empty()) model.erase(victim->second);
        content.erase(victim);
      }
      ASSERT_EQ(index.block_count(), content.size());
      ASSERT_EQ(index.prefix_count(), model.size());
      ASSERT_TRUE(index.CheckInvariants().ok()) << index.CheckInvariants();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KeyBits, PrefixIndexModelTest, testing::Values(0, 1, 8, 70, 128));

}  // namespace
}  // namespace octavo
