#include "scheduler/core/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
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
    node = index
               .Insert(BlockId(first + i), scope, node,
                       std::span(tokens).subspan(i * block_size, block_size), StepNumber(1))
               .node;
  }
}

TEST(PrefixIndexTest, ALookupWalksDownToTheFirstBlockThatDiffers) {
  PrefixIndex index(10, 3, /*finds_runs=*/true, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5, 6, 7, 8}, 0);
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5, 6, 7, 8}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 1));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 9, 5, 6, 7, 8}), ElementsAre(0));
  EXPECT_THAT(Find(index, {3, 4, 5}), ElementsAre());
}

// Scenario row 11: the salt is part of the first block's key only, and whoever follows the first
// block has it.
TEST(PrefixIndexTest, ScopesKeepEqualTokensApart) {
  PrefixIndex index(10, 3, /*finds_runs=*/true, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5}, 0, "salt");
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}, "salt"), ElementsAre(0, 1));
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}, "other"), ElementsAre());
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}), ElementsAre());
  Insert(index, {0, 1, 2, 3, 4, 5}, 4);
  EXPECT_THAT(Find(index, {0, 1, 2, 3, 4, 5}), ElementsAre(4, 5));
  EXPECT_EQ(index.scope_count(), 2u);
}

TEST(PrefixIndexTest, AScopeIsForgottenWithItsLastBlock) {
  PrefixIndex index(4, 3, /*finds_runs=*/true, kSeed);
  Insert(index, {0, 1, 2}, 0, "salt");
  Insert(index, {5, 6, 7}, 1, "salt");
  index.Remove(BlockId(0));
  EXPECT_EQ(index.scope_count(), 1u);
  index.Remove(BlockId(1));
  EXPECT_EQ(index.scope_count(), 0u);
  EXPECT_EQ(index.block_count(), 0u);
}

TEST(PrefixIndexTest, ATwinIsFoundWhenTheFirstIsEvicted) {
  PrefixIndex index(10, 3, /*finds_runs=*/true, kSeed);
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

// Scenario row 24: a key is a function of its parent's key, its tokens and the scope, and of
// nothing else.
TEST(PrefixIndexTest, KeysChain) {
  const auto keys = [](const std::vector<TokenId>& tokens, const std::string& scope = "") {
    PrefixIndex index(4, 3, /*finds_runs=*/true, kSeed);
    Insert(index, {90, 91, 92}, 0);  // what else is there changes nothing
    Insert(index, tokens, 1, scope);
    return std::pair(PrefixKeyHex(index.NodeOf(BlockId(1)).key),
                     PrefixKeyHex(index.NodeOf(BlockId(2)).key));
  };
  const auto [first, second] = keys({0, 1, 2, 3, 4, 5});
  EXPECT_NE(first, second);
  EXPECT_EQ(keys({0, 1, 2, 3, 4, 5}), std::pair(first, second));
  const auto [same, tail] = keys({0, 1, 2, 3, 4, 6});
  EXPECT_EQ(same, first);
  EXPECT_NE(tail, second);
  // Another beginning, or another scope, changes every key after it.
  EXPECT_NE(keys({0, 1, 3, 3, 4, 5}).first, first);
  EXPECT_NE(keys({0, 1, 3, 3, 4, 5}).second, second);
  EXPECT_NE(keys({0, 1, 2, 3, 4, 5}, "salt").first, first);
  EXPECT_NE(keys({0, 1, 2, 3, 4, 5}, "salt").second, second);
}

TEST(PrefixIndexTest, KeysDependOnTheSeed) {
  PrefixIndex one(2, 3, /*finds_runs=*/true, 1);
  PrefixIndex other(2, 3, /*finds_runs=*/true, 2);
  Insert(one, {0, 1, 2}, 0);
  Insert(other, {0, 1, 2}, 0);
  EXPECT_NE(PrefixKeyHex(one.NodeOf(BlockId(0)).key), PrefixKeyHex(other.NodeOf(BlockId(0)).key));
  EXPECT_EQ(PrefixKeyHex(one.NodeOf(BlockId(0)).key).size(), 32u);
}

TEST(PrefixIndexTest, AnOrphanIsReported) {
  PrefixIndex index(4, 3, /*finds_runs=*/true, kSeed);
  Insert(index, {0, 1, 2, 3, 4, 5}, 0);
  index.Remove(BlockId(0));
  EXPECT_THAT(std::string(index.CheckInvariants().message()),
              testing::HasSubstr("indexed block 1: its parent is not indexed"));
}

class PrefixRunTest : public testing::Test {
 protected:
  // A block after the empty prefix.
  PrefixIndex::Entered Insert(uint32_t block, const std::vector<TokenId>& tokens) {
    const auto entered = index_.Insert(BlockId(block), "", {}, tokens, StepNumber(1));
    EXPECT_TRUE(index_.CheckInvariants().ok()) << index_.CheckInvariants();
    return entered;
  }
  // "3 of 7": 3 tokens of block 7.
  std::string Run(const std::vector<TokenId>& tokens, const std::string& scope = "") {
    const PrefixRun run = index_.FindRun({}, scope, tokens);
    return std::to_string(run.token_count) + " of " + std::to_string(run.block.value());
  }

  PrefixIndex index_{10, 4, /*finds_runs=*/true, kSeed};
};

TEST_F(PrefixRunTest, TheChildWithTheLongestRunIsFoundBeforeOrAfterTheWord) {
  Insert(1, {5, 6, 7, 8});
  Insert(2, {5, 6, 9, 9});
  Insert(3, {5, 6, 8});
  EXPECT_EQ(Run({5, 6, 7, 9}), "3 of 1");
  EXPECT_EQ(Run({5, 6, 8, 8}), "3 of 3");
  EXPECT_EQ(Run({5, 6, 9, 8}), "3 of 2");
  EXPECT_EQ(Run({5, 6, 9, 9}), "4 of 2");
  EXPECT_EQ(Run({5, 6}), "2 of 1");
  EXPECT_EQ(Run({5, 7}), "1 of 2");
  EXPECT_EQ(Run({4}), "0 of 0");
  EXPECT_EQ(Run({5, 6, 7, 9}, "salt"), "0 of 0");
}

TEST_F(PrefixRunTest, ALongerChildTakesTheLeafsPlace) {
  EXPECT_EQ(Insert(1, {5, 6}).covered, std::nullopt);
  EXPECT_EQ(Insert(2, {5, 7}).covered, std::nullopt);
  EXPECT_EQ(Insert(3, {5, 6, 7}).covered, BlockId(1));
  EXPECT_FALSE(index_.Contains(BlockId(1)));
  EXPECT_EQ(Insert(4, {5, 6, 7, 8}).covered, BlockId(3));
  EXPECT_EQ(Insert(5, {5, 6, 7, 8}).covered, std::nullopt);  // a twin
  EXPECT_EQ(index_.block_count(), 3u);
  EXPECT_EQ(index_.prefix_count(), 2u);
  EXPECT_EQ(Run({5, 7, 7}), "2 of 2");
}

TEST_F(PrefixRunTest, ALeafLeavesAndIsFoundNoMore) {
  Insert(1, {5, 6, 7});
  EXPECT_EQ(Run({5, 6, 7, 8}), "3 of 1");
  index_.Remove(BlockId(1));
  EXPECT_EQ(Run({5, 6, 7, 8}), "0 of 0");
  EXPECT_EQ(index_.scope_count(), 0u);
}

TEST_F(PrefixRunTest, ATwinIsCopiedFromWhenTheFirstIsEvicted) {
  Insert(1, {5, 6, 7, 8});
  Insert(2, {5, 6, 7, 8});
  EXPECT_EQ(Run({5, 6, 7}), "3 of 1");
  index_.Remove(BlockId(1));
  EXPECT_EQ(Run({5, 6, 7}), "3 of 2");
  EXPECT_TRUE(index_.CheckInvariants().ok()) << index_.CheckInvariants();
}

TEST_F(PrefixRunTest, AMovedIndexStillKnowsItsOrder) {
  Insert(1, {5, 6, 7, 8});
  PrefixIndex moved = std::move(index_);
  moved.Insert(BlockId(2), "", {}, std::vector<TokenId>{5, 6, 9}, StepNumber(1));
  EXPECT_EQ(moved.FindRun({}, "", std::vector<TokenId>{5, 6, 9, 9}), (PrefixRun{BlockId(2), 3}));
  EXPECT_TRUE(moved.CheckInvariants().ok()) << moved.CheckInvariants();
}

TEST(PrefixIndexDeathTest, ALeafThatAnotherBlockBeginsWithMustNotEnter) {
  PrefixIndex index(4, 3, /*finds_runs=*/true, kSeed);
  Insert(index, {0, 1, 2}, 0);
  EXPECT_DEATH(index.Insert(BlockId(1), "", {}, std::vector<TokenId>{0, 1}, StepNumber(1)),
               "is a leaf that another child begins with");
}

// Prefixes as whole token lists, so no hash, no chain and no order. With the hash cut to a few bits
// nearly every key collides, and the stored tokens alone must keep prefixes apart.
class NaivePrefixes {
 public:
  using Prefix = std::pair<std::string, std::vector<TokenId>>;  // scope and tokens

  explicit NaivePrefixes(uint32_t block_size) : block_size_(block_size) {}

  // The blocks of the longest known prefix.
  std::vector<uint32_t> Walk(const std::string& scope, const std::vector<TokenId>& tokens) const {
    std::vector<uint32_t> found;
    for (uint32_t end = block_size_; end <= tokens.size(); end += block_size_) {
      const auto it = blocks_of_.find({scope, {tokens.begin(), tokens.begin() + end}});
      if (it == blocks_of_.end()) break;
      found.push_back(it->second.front());
    }
    return found;
  }
  // How many tokens of `wanted` a block has that follows its first `depth` blocks.
  uint32_t RunOf(const Prefix& known, const Prefix& wanted, uint32_t depth) const {
    const uint32_t begin = depth * block_size_;
    const auto& [scope, tokens] = known;
    if (scope != wanted.first || (tokens.size() - 1) / block_size_ != depth) return 0;
    uint32_t count = 0;
    while (count < tokens.size() && count < wanted.second.size() &&
           tokens[count] == wanted.second[count]) {
      ++count;
    }
    return count > begin ? count - begin : 0;
  }
  uint32_t LongestRun(const Prefix& wanted, uint32_t depth) const {
    uint32_t longest = 0;
    for (const auto& [known, blocks] : blocks_of_) {
      longest = std::max(longest, RunOf(known, wanted, depth));
    }
    return longest;
  }
  // Leaves that `prefix` goes on from.
  std::vector<uint32_t> Covered(const Prefix& prefix) const {
    std::vector<uint32_t> covered;
    for (const auto& [known, blocks] : blocks_of_) {
      const size_t size = known.second.size();
      if (known.first == prefix.first && size % block_size_ != 0 && size < prefix.second.size() &&
          std::equal(known.second.begin(), known.second.end(), prefix.second.begin())) {
        covered.push_back(blocks.front());
      }
    }
    return covered;
  }
  bool HasChildren(const Prefix& prefix) const {
    for (const auto& [known, blocks] : blocks_of_) {
      if (known.first == prefix.first && known.second.size() > prefix.second.size() &&
          std::equal(prefix.second.begin(), prefix.second.end(), known.second.begin())) {
        return true;
      }
    }
    return false;
  }
  void Insert(uint32_t block, const Prefix& prefix) {
    auto& twins = blocks_of_[prefix];
    twins.insert(twins.begin() + (twins.empty() ? 0 : 1), block);
    prefix_of_[block] = prefix;
  }
  void Remove(uint32_t block) {
    auto& twins = blocks_of_.at(prefix_of_.at(block));
    twins.erase(std::find(twins.begin(), twins.end(), block));
    if (twins.empty()) blocks_of_.erase(prefix_of_.at(block));
    prefix_of_.erase(block);
  }

  const std::map<uint32_t, Prefix>& prefix_of() const { return prefix_of_; }
  const std::map<Prefix, std::vector<uint32_t>>& blocks_of() const { return blocks_of_; }

 private:
  uint32_t block_size_;
  std::map<Prefix, std::vector<uint32_t>> blocks_of_;
  std::map<uint32_t, Prefix> prefix_of_;
};

// NaivePrefixes::Walk is the reference of FindAgain too: questions asked at any time before, the
// answer kept, are asked again for all their tokens or more, after inserts, evictions and twins
// taking over.
class PrefixIndexModelTest : public testing::TestWithParam<uint32_t> {};

TEST_P(PrefixIndexModelTest, RandomOperationsAgreeWithWholeTokenLists) {
  std::mt19937_64 random(7 + GetParam());
  for (const uint32_t block_size : {1u, 2u, 3u, 16u}) {
    constexpr uint32_t kCapacity = 40;
    PrefixIndex index(kCapacity, block_size, /*finds_runs=*/true, random(), GetParam());
    NaivePrefixes model(block_size);
    uint32_t leaves = 0;
    uint32_t covered_leaves = 0;
    struct Question {
      std::string scope;
      std::vector<TokenId> tokens;
      size_t asked_for = 0;  // of the tokens, when it was last asked
      PrefixNode node;
      std::vector<BlockId> blocks;
    };
    std::vector<Question> questions(8);
    const auto ask_again = [&](Question& it) {
      it.asked_for += random() % (it.tokens.size() - it.asked_for + 1);
      const auto tokens = std::span(it.tokens).first(it.asked_for);
      it.node = index.FindAgain(tokens, it.scope, it.node, it.blocks);
      std::vector<BlockId> anew;
      ASSERT_EQ(it.node, index.Find(tokens, it.scope, anew));
      ASSERT_EQ(it.blocks, anew);
      std::vector<uint32_t> ids;
      for (const BlockId block : anew) ids.push_back(block.value());
      ASSERT_EQ(ids, model.Walk(it.scope, {tokens.begin(), tokens.end()}));
    };
    for (int step = 0; step < 8000; ++step) {
      const std::string scope = random() % 3 == 0 ? "x" : "";
      std::vector<TokenId> tokens(1 + random() % (block_size * 5));
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
      // A few lists only: with long blocks, all of random tokens would differ at once.
      if (block_size == 16)
        std::fill(tokens.begin(), tokens.end() - random() % 3 % tokens.size(), 1);
      if (random() % 20 == 0) questions[random() % questions.size()] = {scope, tokens};
      for (Question& question : questions) {
        if (random() % 4 != 0) continue;
        ASSERT_NO_FATAL_FAILURE(ask_again(question));
      }
      if (random() % 2000 == 0) {
        index.Clear();
        model = NaivePrefixes(block_size);
      }
      std::vector<BlockId> blocks;
      PrefixNode node = index.Find(tokens, scope, blocks);
      ASSERT_EQ(Find(index, tokens, scope), model.Walk(scope, tokens));
      auto depth = static_cast<uint32_t>(blocks.size());
      const auto rest = std::span(tokens).subspan(depth * block_size);
      const PrefixRun run = index.FindRun(node, scope, rest);
      ASSERT_EQ(run.token_count, model.LongestRun({scope, tokens}, depth));
      if (run.token_count > 0) {
        ASSERT_EQ(model.RunOf(model.prefix_of().at(run.block.value()), {scope, tokens}, depth),
                  run.token_count);
      }
      if (random() % 2 == 0) {
        // The next block of the walk, whole or in part, or a twin of its last.
        if (random() % 3 == 0 && depth > 0) {
          --depth;
          blocks.clear();
          node = index.Find(std::span(tokens).first(depth * block_size), scope, blocks);
        }
        const auto block = static_cast<uint32_t>(random() % kCapacity);
        const auto begin = depth * block_size;
        const auto count =
            std::min<uint32_t>(block_size, static_cast<uint32_t>(tokens.size()) - begin);
        if (index.Contains(BlockId(block)) || count == 0) continue;
        const NaivePrefixes::Prefix prefix{scope, {tokens.begin(), tokens.begin() + begin + count}};
        const bool is_leaf = count < block_size;
        if (is_leaf && model.LongestRun(prefix, depth) == count) continue;
        const auto expected = model.Covered(prefix);
        const auto entered = index.Insert(BlockId(block), scope, node,
                                          std::span(tokens).subspan(begin, count), StepNumber(1));
        ASSERT_EQ(entered.node, index.NodeOf(BlockId(block)));
        ASSERT_EQ(entered.covered.has_value(), !expected.empty());
        ASSERT_LE(expected.size(), 1u);
        if (entered.covered) {
          ASSERT_EQ(entered.covered->value(), expected[0]);
          model.Remove(expected[0]);
          ++covered_leaves;
        }
        model.Insert(block, prefix);
        leaves += is_leaf;
      } else if (!model.prefix_of().empty()) {
        // Evict somebody without children, as the pool's order does.
        const auto victim = std::next(model.prefix_of().begin(),
                                      static_cast<int64_t>(random() % model.prefix_of().size()));
        if (model.blocks_of().at(victim->second).size() == 1 && model.HasChildren(victim->second)) {
          continue;
        }
        index.Remove(BlockId(victim->first));
        model.Remove(victim->first);
      }
      ASSERT_EQ(index.block_count(), model.prefix_of().size());
      ASSERT_EQ(index.prefix_count(), model.blocks_of().size());
      ASSERT_TRUE(index.CheckInvariants().ok()) << index.CheckInvariants();
    }
    if (block_size > 1) {
      EXPECT_GT(leaves, 100u);
      EXPECT_GT(covered_leaves, 30u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KeyBits, PrefixIndexModelTest, testing::Values(0, 1, 8, 70, 128));

}  // namespace
}  // namespace octavo
