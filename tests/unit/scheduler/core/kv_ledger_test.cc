// The memory scenarios (rows 1 to 18 of the scenario list), without an engine: block ids start at 0
// here, so every id and every queue is one less than in the list, and a pool of N - 1 blocks stands
// for its N. They share whole blocks; the tests at the end share parts of blocks too.

#include "scheduler/core/kv_ledger.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using testing::ElementsAre;

std::vector<TokenId> Range(TokenId first, TokenId count) {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class KvLedgerTest : public testing::Test {
 protected:
  // `unit` 0: whole blocks.
  void Make(uint32_t block_size, uint32_t block_count, uint32_t unit = 0) {
    ledger_.emplace(
        KvLayout{.block_size = block_size, .layer_count = 1, .kv_head_count = 1, .head_dim = 8},
        block_count, /*prefix_cache=*/true, unit == 0 ? block_size : unit, /*prefix_seed=*/1);
    tables_.clear();
    tokens_.clear();
  }

  // Admits `tokens` and writes them all, as one step would; a hit's run is copied by it. False, and
  // nothing changed, if the blocks are short.
  bool Allocate(const std::string& name, const std::vector<TokenId>& tokens,
                const std::string& scope = "", bool read = true) {
    const PrefixHit hit = read ? ledger_->FindPrefix(tokens, scope) : PrefixHit();
    const uint32_t need = ledger_->layout().BlocksFor(tokens.size()) - hit.block_count();
    if (need + hit.idle_block_count > ledger_->available_count()) return false;
    hit_[name] = hit.token_count;
    scope_[name] = scope;
    ledger_->Share(hit, tables_[name]);
    ledger_->Append(need, tables_[name]);
    if (hit.run.token_count > 0) {
      ledger_->ReleaseAfter(StepNumber(2), hit.run.block);
      ledger_->CompleteThrough(StepNumber(2));
    }
    Write(name, tokens);
    return true;
  }
  // The sequence has grown to `tokens`.
  void Grow(const std::string& name, const std::vector<TokenId>& tokens) {
    ledger_->Append(ledger_->layout().BlocksFor(tokens.size()) - tables_[name].size(),
                    tables_[name]);
    Write(name, tokens);
  }
  void Write(const std::string& name, const std::vector<TokenId>& tokens) {
    tokens_[name] = tokens;
    ledger_->IndexFull(tokens, static_cast<uint32_t>(tokens.size()), scope_[name], StepNumber(1),
                       tables_[name]);
    Check();
  }
  void Free(const std::string& name) {
    ledger_->IndexLeaf(tokens_[name], static_cast<uint32_t>(tokens_[name].size()), scope_[name],
                       StepNumber(1), tables_[name]);
    ledger_->Release(tables_[name]);
    tables_.erase(name);
    Check();
  }
  void Check() {
    std::vector<uint32_t> references(ledger_->pool().capacity());
    for (const auto& [name, table] : tables_) {
      for (const BlockId block : table.blocks()) ++references[block.value()];
    }
    const absl::Status status = ledger_->CheckInvariants(references, StepNumber(1));
    EXPECT_TRUE(status.ok()) << status;
  }
  std::vector<uint32_t> Table(const std::string& name) {
    std::vector<uint32_t> ids;
    for (const BlockId block : tables_[name].blocks()) ids.push_back(block.value());
    return ids;
  }
  std::vector<uint32_t> Queue() {
    std::vector<uint32_t> ids;
    const FreeQueue& queue = ledger_->pool().queue();
    for (BlockId it = queue.Front(); it != queue.end(); it = queue.Next(it)) {
      ids.push_back(it.value());
    }
    return ids;
  }
  uint32_t References(uint32_t block) { return ledger_->pool().reference_count(BlockId(block)); }

  std::optional<KvLedger> ledger_;
  std::map<std::string, BlockTable> tables_;
  std::map<std::string, std::vector<TokenId>> tokens_;
  std::map<std::string, uint32_t> hit_;
  std::map<std::string, std::string> scope_;
};

TEST_F(KvLedgerTest, Row1SharedPrefixesAreCountedAndComeBackInOrder) {
  Make(16, 10);
  const auto common = Range(0, 48);
  ASSERT_TRUE(Allocate("r0", common + Range(1000, 7)));
  EXPECT_THAT(Table("r0"), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(tables_["r0"].indexed_count(), 3u);
  ASSERT_TRUE(Allocate("r1", common + Range(2000, 5)));
  EXPECT_EQ(hit_["r1"], 48u);
  EXPECT_THAT(Table("r1"), ElementsAre(0, 1, 2, 4));
  EXPECT_EQ(References(1), 2u);
  EXPECT_EQ(ledger_->available_count(), 5u);
  Free("r0");
  Free("r1");
  EXPECT_THAT(Queue(), ElementsAre(4, 3, 5, 6, 7, 8, 9, 2, 1, 0));
  ASSERT_TRUE(Allocate("r2", common + Range(3000, 6)));
  EXPECT_EQ(hit_["r2"], 48u);
  EXPECT_THAT(Table("r2"), ElementsAre(0, 1, 2, 4));
  Free("r2");
  ASSERT_TRUE(Allocate("r3", Range(5000, 160)));
  EXPECT_THAT(Table("r3"), ElementsAre(4, 3, 5, 6, 7, 8, 9, 2, 1, 0));
  EXPECT_EQ(ledger_->available_count(), 0u);
}

TEST_F(KvLedgerTest, Row2TheLeastRecentlyUsedPrefixIsReusedFirst) {
  Make(16, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 87)));
  EXPECT_THAT(Table("r0"), ElementsAre(0, 1, 2, 3, 4, 5));
  ASSERT_TRUE(Allocate("r1", Range(87, 48)));
  EXPECT_THAT(Table("r1"), ElementsAre(6, 7, 8));
  Free("r0");
  EXPECT_THAT(Queue(), ElementsAre(5, 9, 4, 3, 2, 1, 0));
  Free("r1");
  EXPECT_THAT(Queue(), ElementsAre(5, 9, 4, 3, 2, 1, 0, 8, 7, 6));
  ASSERT_TRUE(Allocate("r2", Range(0, 35)));
  EXPECT_EQ(hit_["r2"], 32u);
  EXPECT_THAT(Table("r2"), ElementsAre(0, 1, 5));
  EXPECT_THAT(Queue(), ElementsAre(9, 4, 3, 2, 8, 7, 6));
}

TEST_F(KvLedgerTest, Row3TheLastTokenIsAlwaysComputed) {
  Make(16, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 48)));
  Free("r0");
  ASSERT_TRUE(Allocate("r1", Range(0, 48)));
  EXPECT_EQ(hit_["r1"], 32u);
  EXPECT_THAT(Table("r1"), ElementsAre(0, 1, 3));
  EXPECT_EQ(ledger_->index().prefix_count(), 3u);
  Free("r1");
  EXPECT_THAT(Queue(), ElementsAre(4, 5, 6, 7, 8, 9, 2, 3, 1, 0));
  ASSERT_TRUE(Allocate("r2", Range(0, 49)));
  EXPECT_EQ(hit_["r2"], 48u);
  EXPECT_THAT(Table("r2"), ElementsAre(0, 1, 2, 4));
}

TEST_F(KvLedgerTest, Row5AFullTailIsIndexedWhenItFills) {
  Make(16, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 55)));
  EXPECT_THAT(Table("r0"), ElementsAre(0, 1, 2, 3));
  Grow("r0", Range(0, 59));
  EXPECT_EQ(tables_["r0"].size(), 4u);
  EXPECT_FALSE(ledger_->index().Contains(BlockId(3)));
  Grow("r0", Range(0, 78));
  EXPECT_THAT(Table("r0"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(ledger_->index().Contains(BlockId(3)));
  EXPECT_FALSE(ledger_->index().Contains(BlockId(4)));
}

TEST_F(KvLedgerTest, Row6AReusedBlockForgetsItsPrefix) {
  Make(16, 1);
  ASSERT_TRUE(Allocate("r0", Range(0, 16)));
  Free("r0");
  ASSERT_TRUE(Allocate("r1", Range(100, 15)));
  EXPECT_THAT(Table("r1"), ElementsAre(0));
  EXPECT_EQ(ledger_->index().block_count(), 0u);
  EXPECT_EQ(ledger_->evicted_count(), 1u);
}

TEST_F(KvLedgerTest, Row7AHitIsNotEvictedForTheSameRequest) {
  Make(16, 2);
  ASSERT_TRUE(Allocate("a", Range(0, 16)));
  ASSERT_TRUE(Allocate("b", Range(100, 16)));
  Free("a");
  Free("b");
  ASSERT_TRUE(Allocate("c", Range(0, 16) + Range(100, 16)));
  EXPECT_EQ(hit_["c"], 16u);
  EXPECT_THAT(Table("c"), ElementsAre(0, 1));
}

TEST_F(KvLedgerTest, Row9ARefusalChangesNothing) {
  Make(16, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 48)));
  ASSERT_TRUE(Allocate("r1", Range(0, 96)));
  EXPECT_EQ(hit_["r1"], 48u);
  EXPECT_THAT(Table("r1"), ElementsAre(0, 1, 2, 3, 4, 5));
  Free("r1");
  ASSERT_TRUE(Allocate("r2", Range(1000, 32)));
  EXPECT_THAT(Table("r2"), ElementsAre(6, 7));
  EXPECT_THAT(Queue(), ElementsAre(8, 9, 5, 4, 3));
  EXPECT_FALSE(Allocate("r3", Range(0, 144)));
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 144), "").token_count, 96u);
  EXPECT_THAT((std::vector{References(0), References(1), References(2), References(3)}),
              ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(Queue(), ElementsAre(8, 9, 5, 4, 3));
}

TEST_F(KvLedgerTest, Row10ResetIsRefusedWhileBlocksAreHeld) {
  Make(16, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 55)));
  EXPECT_TRUE(absl::IsFailedPrecondition(ledger_->ResetPrefixes()));
  EXPECT_EQ(ledger_->index().block_count(), 3u);
  Free("r0");
  EXPECT_TRUE(ledger_->ResetPrefixes().ok());
  EXPECT_EQ(ledger_->index().block_count(), 0u);
  EXPECT_EQ(ledger_->pool().cached_count(), 0u);
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 55), "").token_count, 0u);
}

TEST_F(KvLedgerTest, Row11SaltsKeepPrefixesApart) {
  Make(16, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 59), "salt"));
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 59), "salt").token_count, 48u);
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 59), "other").token_count, 0u);
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 59), "").token_count, 0u);
}

TEST_F(KvLedgerTest, Row14TheSameTokensComputedTwiceAreTwins) {
  Make(4, 10);
  ASSERT_TRUE(Allocate("r0", Range(0, 8)));
  ASSERT_TRUE(Allocate("r1", Range(0, 8), "", /*read=*/false));
  EXPECT_THAT(Table("r1"), ElementsAre(2, 3));
  Free("r0");
  Free("r1");
  EXPECT_THAT(Queue(), ElementsAre(4, 5, 6, 7, 8, 9, 1, 0, 3, 2));
  ASSERT_TRUE(Allocate("r2", Range(0, 9)));
  EXPECT_EQ(hit_["r2"], 8u);
  EXPECT_THAT(Table("r2"), ElementsAre(0, 1, 4));
}

TEST_F(KvLedgerTest, Row16AChainLosesItsTailFirst) {
  Make(4, 5);
  ASSERT_TRUE(Allocate("r0", Range(0, 20)));
  Free("r0");
  EXPECT_THAT(Queue(), ElementsAre(4, 3, 2, 1, 0));
  ASSERT_TRUE(Allocate("r1", Range(100, 8)));
  EXPECT_THAT(Table("r1"), ElementsAre(4, 3));
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 20), "").token_count, 12u);
}

TEST_F(KvLedgerTest, Row18TheDocumentedExample) {
  Make(4, 10);
  const auto first = Range(0, 15);
  ASSERT_TRUE(Allocate("r0", first));
  EXPECT_THAT(Table("r0"), ElementsAre(0, 1, 2, 3));
  Grow("r0", first + Range(500, 2));
  EXPECT_THAT(Table("r0"), ElementsAre(0, 1, 2, 3, 4));
  ASSERT_TRUE(Allocate("r1", Range(0, 10) + Range(600, 4)));
  EXPECT_EQ(hit_["r1"], 8u);
  EXPECT_THAT(Table("r1"), ElementsAre(0, 1, 5, 6));
  Free("r0");
  EXPECT_THAT(Queue(), ElementsAre(4, 7, 8, 9, 3, 2));
  Free("r1");
  EXPECT_THAT(Queue(), ElementsAre(6, 4, 7, 8, 9, 3, 2, 5, 1, 0));
  ASSERT_TRUE(Allocate("r2", Range(0, 12) + Range(700, 17)));
  EXPECT_EQ(hit_["r2"], 12u);
  EXPECT_THAT(Table("r2"), ElementsAre(0, 1, 2, 6, 4, 7, 8, 9));
}

TEST_F(KvLedgerTest, BlocksOfAStepInFlightComeBackWhenItIsDone) {
  Make(4, 4);
  ASSERT_TRUE(Allocate("r0", Range(0, 8)));
  ledger_->ReleaseAfter(StepNumber(3), tables_["r0"]);
  tables_.erase("r0");
  EXPECT_EQ(ledger_->returning_count(), 2u);
  EXPECT_EQ(ledger_->available_count(), 2u);
  ASSERT_TRUE(Allocate("r1", Range(0, 9)));  // what is on its way back may be shared
  EXPECT_EQ(References(1), 2u);
  ledger_->CompleteThrough(StepNumber(2));
  EXPECT_EQ(ledger_->returning_count(), 2u);
  ledger_->CompleteThrough(StepNumber(3));
  EXPECT_EQ(ledger_->returning_count(), 0u);
  EXPECT_EQ(References(1), 1u);
  Check();
}

TEST_F(KvLedgerTest, AHitEndsWhereTheFirstRequestEnded) {
  for (const uint32_t unit : {1u, 32u}) {
    Make(32, 100, unit);
    ASSERT_TRUE(Allocate("a", Range(0, 1000)));
    Free("a");
    EXPECT_EQ(ledger_->FindPrefix(Range(0, 1000), "").token_count, unit == 1 ? 999 : 992);
    EXPECT_EQ(ledger_->FindPrefix(Range(0, 2000), "").token_count, unit == 1 ? 1000 : 992);
  }
}

TEST_F(KvLedgerTest, ARunIsRoundedDownToTheUnit) {
  Make(16, 10, 4);
  ASSERT_TRUE(Allocate("a", Range(0, 16 + 11)));
  Free("a");
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 100), "").token_count, 24u);
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 20), "").token_count, 16u);
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 21), "").token_count, 20u);
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 16), "").token_count, 12u);
  ASSERT_TRUE(Allocate("b", Range(500, 3)));  // shorter than a unit: nobody would find it
  Free("b");
  EXPECT_EQ(ledger_->index().block_count(), 2u);
}

TEST_F(KvLedgerTest, APartIsCopiedAndItsBlockLeftToOthers) {
  Make(4, 6, 1);
  ASSERT_TRUE(Allocate("a", Range(0, 7)));
  Free("a");
  EXPECT_THAT(Queue(), ElementsAre(2, 3, 4, 5, 1, 0));
  const PrefixHit hit = ledger_->FindPrefix(Range(0, 6) + Range(50, 2), "");
  EXPECT_THAT(hit.blocks, ElementsAre(BlockId(0)));
  EXPECT_EQ(hit.run, (PrefixRun{BlockId(1), 2}));
  EXPECT_EQ(hit.token_count, 6u);
  EXPECT_EQ(hit.idle_block_count, 2u);
  BlockTable& table = tables_["b"];
  ledger_->Share(hit, table);
  ledger_->Append(4, table);  // all there are: what is copied from is not among them
  EXPECT_THAT(Table("b"), ElementsAre(0, 2, 3, 4, 5));
  ledger_->ReleaseAfter(StepNumber(2), hit.run.block);
  Check();
  EXPECT_EQ(ledger_->available_count(), 0u);
  ledger_->CompleteThrough(StepNumber(2));
  EXPECT_THAT(Queue(), ElementsAre(1));
  EXPECT_EQ(ledger_->pool().state(BlockId(1)), BlockState::kCached);
}

TEST_F(KvLedgerTest, WhoeverGoesOnFromALeafTakesItsPlace) {
  Make(4, 6, 1);
  ASSERT_TRUE(Allocate("a", Range(0, 6)));
  Free("a");
  EXPECT_THAT(Queue(), ElementsAre(2, 3, 4, 5, 1, 0));
  ASSERT_TRUE(Allocate("b", Range(0, 9)));
  EXPECT_EQ(hit_["b"], 6u);
  EXPECT_THAT(Table("b"), ElementsAre(0, 2, 3));
  EXPECT_EQ(ledger_->pool().state(BlockId(1)), BlockState::kFree);
  EXPECT_THAT(Queue(), ElementsAre(1, 4, 5));
  // Another end of the same block is another leaf; the same end again is none.
  ASSERT_TRUE(Allocate("c", Range(0, 6) + Range(60, 1)));
  ASSERT_TRUE(Allocate("d", Range(0, 7)));
  Free("c");
  Free("d");
  EXPECT_EQ(ledger_->FindPrefix(Range(0, 6) + Range(60, 9), "").token_count, 7u);
  EXPECT_EQ(ledger_->index().block_count(), 3u);
}

// The reference knows no block: with room enough, a hit is the longest common beginning with
// anything that was ever written, whole blocks of those that still run.
TEST_F(KvLedgerTest, WithRoomEnoughAHitIsTheLongestCommonBeginning) {
  std::mt19937_64 random(31);
  uint64_t partial = 0;
  for (const uint32_t block_size : {1u, 2u, 3u, 4u, 16u}) {
    for (const uint32_t unit : {1u, 2u, 3u}) {
      Make(block_size, 6000, unit);
      std::vector<std::pair<std::string, std::vector<TokenId>>> written;  // with their scopes
      std::vector<std::string> running;
      const auto expected = [&](const std::string& scope, const std::vector<TokenId>& tokens) {
        uint32_t longest = 0;
        const auto look_at = [&](const std::string& other, const std::vector<TokenId>& known,
                                 size_t known_count) {
          uint32_t count = 0;
          while (count < known_count && count + 1 < tokens.size() &&
                 known[count] == tokens[count]) {
            ++count;
          }
          if (other == scope) longest = std::max(longest, count);
        };
        for (const auto& [other, known] : written) look_at(other, known, known.size());
        for (const std::string& name : running) {
          const auto& known = tokens_[name];
          look_at(scope_[name], known, known.size() / block_size * block_size);
        }
        const uint32_t run = longest % block_size;
        return longest - run + (unit < block_size ? run - run % unit : 0);
      };
      const auto draw = [&](std::vector<TokenId> tokens) {
        const size_t count = 1 + random() % (2 * block_size + 2);
        for (size_t i = 0; i < count; ++i) {
          tokens.push_back(static_cast<TokenId>(random() % 8 != 0 ? 1 : 2));
        }
        return tokens;
      };
      for (int i = 0; i < 300; ++i) {
        const std::string scope = random() % 4 == 0 ? "x" : "";
        std::vector<TokenId> tokens;
        if (!written.empty() && random() % 2 == 0)
          tokens = written[random() % written.size()].second;
        if (random() % 4 != 0) tokens = draw(tokens);
        if (tokens.empty()) continue;
        if (!tokens.empty() && random() % 3 == 0) tokens.resize(1 + random() % tokens.size());
        const PrefixHit hit = ledger_->FindPrefix(tokens, scope);
        ASSERT_EQ(hit.token_count, expected(scope, tokens))
            << "block size " << block_size << ", unit " << unit;
        partial += hit.run.token_count > 0;
        if (random() % 3 == 0 && !running.empty()) {
          const std::string name = running[random() % running.size()];
          if (random() % 2 == 0) {
            Grow(name, draw(tokens_[name]));
            continue;
          }
          written.emplace_back(scope_[name], tokens_[name]);
          std::erase(running, name);
          Free(name);
          continue;
        }
        const std::string name = std::to_string(i);
        if (!Allocate(name, tokens, scope, /*read=*/random() % 8 != 0)) break;
        running.push_back(name);
      }
    }
  }
  EXPECT_GT(partial, 300u);
}

}  // namespace
}  // namespace octavo
