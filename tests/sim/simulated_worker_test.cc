// The worker that is to catch paging errors, held against errors planted by hand: a prefix hit that
// ends inside a block, first as it should be, then wrong in every way it can be.

#include "tests/sim/simulated_worker.h"

#include <functional>
#include <numeric>
#include <vector>

#include "common/table_digest.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

constexpr uint32_t kVocabulary = 1 << 30;  // two hashes that differ give two tokens
constexpr uint64_t kSeed = 17;
constexpr KvLayout kLayout{.block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};

std::vector<TokenId> Tokens(uint32_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

// One sequence more on the worker, its table given whole: it computes [first, tokens.size()).
class Plans {
 public:
  StepPlan Start(SequenceId id, const std::vector<uint32_t>& table, uint32_t first,
                 const std::vector<TokenId>& tokens) {
    StepPlan plan{.epoch = Epoch(1), .step = StepNumber(++last_step_)};
    plan.layer_groups.resize(1);
    Add(id, table, first, tokens, plan);
    return plan;
  }
  void Add(SequenceId id, const std::vector<uint32_t>& table, uint32_t first,
           const std::vector<TokenId>& tokens, StepPlan& plan) {
    plan.starts.push_back({.sequence_id = id, .seed = kSeed, .prompt_token_count = first + 1});
    const auto count = static_cast<uint32_t>(tokens.size()) - first;
    plan.rows.push_back(
        {.sequence_id = id, .first_position = first, .token_count = count, .samples = true});
    plan.token_ids.insert(plan.token_ids.end(), tokens.begin() + first, tokens.end());
    LayerGroupChange& change = plan.layer_groups[0];
    change.new_block_counts.push_back(static_cast<uint32_t>(table.size()));
    for (uint32_t i = 0; i < table.size(); ++i) {
      change.new_blocks.push_back(BlockId(table[i]));
      digest_ += EntryDigest(id, i, BlockId(table[i]));
    }
    change.digest = digest_;
  }

 private:
  uint64_t last_step_ = 0;
  uint64_t digest_ = 0;
};

// Sequence 1 has written 7 tokens to blocks 0 and 1. Sequence 2 has the first 6 of them and two of
// its own: it shares block 0 and begins with a copy of half of block 1. `spoil` changes its plan.
// Returns whether its token is the right one.
bool HitIsRight(const std::function<void(StepPlan&)>& spoil) {
  SimulatedWorker worker(Epoch(1), kLayout, 6, kVocabulary);
  Plans plans;
  EXPECT_TRUE(worker.Apply(plans.Start(SequenceId(1), {0, 1}, 0, Tokens(7))).ok());
  std::vector<TokenId> tokens = Tokens(6);
  tokens.insert(tokens.end(), {7, 8});
  StepPlan plan = plans.Start(SequenceId(2), {0, 2}, 6, tokens);
  plan.layer_groups[0].copies = {{BlockId(1), BlockId(2), 2}};
  spoil(plan);
  const auto result = worker.Apply(plan);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() && result->sampled.at(0).token_id == ExpectedToken(tokens, kSeed, kVocabulary);
}

TEST(SimulatedWorkerTest, ACopiedBeginningOfABlockIsReadAsItsOwn) {
  EXPECT_TRUE(HitIsRight([](StepPlan&) {}));
}

TEST(SimulatedWorkerTest, ASkippedCopyIsCaught) {
  EXPECT_FALSE(HitIsRight([](StepPlan& plan) { plan.layer_groups[0].copies.clear(); }));
}

TEST(SimulatedWorkerTest, ACopyOfTooFewTokensIsCaught) {
  EXPECT_FALSE(HitIsRight([](StepPlan& plan) { plan.layer_groups[0].copies[0].token_count = 1; }));
}

TEST(SimulatedWorkerTest, ACopyOfAnotherBlockIsCaught) {
  EXPECT_FALSE(
      HitIsRight([](StepPlan& plan) { plan.layer_groups[0].copies[0].source = BlockId(0); }));
}

// What a wrong hit length does: the copy has slots that hold another token's KV.
TEST(SimulatedWorkerTest, AHitThatIsTooLongIsCaught) {
  EXPECT_FALSE(HitIsRight([](StepPlan& plan) {
    plan.layer_groups[0].copies[0].token_count = 3;
    plan.rows[0].first_position = 7;
    plan.rows[0].token_count = 1;
    plan.token_ids = {8};
  }));
}

TEST(SimulatedWorkerTest, CopiesReadTheirSourcesBeforeAnythingIsWritten) {
  SimulatedWorker worker(Epoch(1), kLayout, 6, kVocabulary);
  Plans plans;
  ASSERT_TRUE(worker.Apply(plans.Start(SequenceId(1), {0, 1}, 0, Tokens(7))).ok());
  // Block 1 is copied, overwritten by a copy and by a row, all in one plan.
  StepPlan plan = plans.Start(SequenceId(2), {0, 2}, 6, Tokens(8));
  plans.Add(SequenceId(3), {3, 1}, 0, Tokens(6), plan);
  plan.layer_groups[0].copies = {{BlockId(0), BlockId(1), 4}, {BlockId(1), BlockId(2), 2}};
  const auto result = worker.Apply(plan);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sampled[0].token_id, ExpectedToken(Tokens(8), kSeed, kVocabulary));
  EXPECT_EQ(result->sampled[1].token_id, ExpectedToken(Tokens(6), kSeed, kVocabulary));
}

}  // namespace
}  // namespace octavo
