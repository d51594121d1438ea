// Plans that no scheduler should send: each is refused by name and changes nothing.

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/table_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/exec/offer_plan.h"

namespace octavo {
namespace {

// Two sequences, 7 (10 tokens computed, the 11th sampled) and 8 (2 tokens computed), and a plan
// that goes on with both.
class MalformedPlanTest : public testing::Test {
 protected:
  MalformedPlanTest() {
    StepPlan first{.epoch = kEpoch, .step = StepNumber(1)};
    first.starts = {{.sequence_id = SequenceId(7), .prompt_token_count = 10},
                    {.sequence_id = SequenceId(8), .prompt_token_count = 4}};
    first.rows = {{.sequence_id = SequenceId(7), .token_count = 10, .samples = true},
                  {.sequence_id = SequenceId(8), .token_count = 2}};
    first.token_ids.assign(12, 5);
    first.layer_groups = {{.new_block_counts = {3, 1}, .new_blocks = Blocks({0, 1, 2, 3})}};
    first.layer_groups[0].digest = DigestOf({{7, {0, 1, 2}}, {8, {3}}});
    CHECK_OK(Offer(tables_, first).status());

    plan_ = {.epoch = kEpoch, .step = StepNumber(2)};
    plan_.starts = {{.sequence_id = SequenceId(9), .prompt_token_count = 1, .history = {1, 2, 3}}};
    plan_.rows = {{.sequence_id = SequenceId(7),
                   .first_position = 10,
                   .token_count = 1,
                   .feeds_sampled = true},
                  {.sequence_id = SequenceId(8), .first_position = 2, .token_count = 4},
                  {.sequence_id = SequenceId(9), .first_position = 0, .token_count = 1}};
    plan_.token_ids.assign(5, 5);
    plan_.layer_groups = {{.new_block_counts = {0, 1, 1},
                           .new_blocks = Blocks({4, 5}),
                           .entry_changes = {{SequenceId(7), 2, BlockId(6)}},
                           .copies = {{BlockId(2), BlockId(6), 2}}}};
    plan_.layer_groups[0].digest = DigestOf({{7, {0, 1, 6}}, {8, {3, 4}}, {9, {5}}});
  }

  static void CHECK_OK(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }
  static std::vector<BlockId> Blocks(std::vector<uint32_t> ids) {
    std::vector<BlockId> blocks;
    for (uint32_t id : ids) blocks.push_back(BlockId(id));
    return blocks;
  }
  static uint64_t DigestOf(std::map<uint64_t, std::vector<uint32_t>> tables) {
    uint64_t digest = 0;
    for (const auto& [id, table] : tables) {
      for (uint32_t i = 0; i < table.size(); ++i)
        digest += EntryDigest(SequenceId(id), i, BlockId(table[i]));
    }
    return digest;
  }

  SequenceTables tables_ = MakeTables();
  StepPlan plan_;
};

TEST_F(MalformedPlanTest, ThePlanItselfIsFine) { EXPECT_TRUE(Offer(tables_, plan_).ok()); }

TEST_F(MalformedPlanTest, EveryFaultIsNamedAndNothingChanges) {
  struct Fault {
    std::string message;
    std::function<void(StepPlan&)> plant;
  };
  const TokenId too_large = 100;
  const std::vector<Fault> faults = {
      {"for replica 5", [](StepPlan& p) { p.replica_id = ReplicaId(5); }},
      {"step is 0", [](StepPlan& p) { p.step = StepNumber(0); }},
      {"releases names sequence 99", [](StepPlan& p) { p.releases = {SequenceId(99)}; }},
      {"releases names sequence 7 twice",
       [](StepPlan& p) { p.releases = {SequenceId(7), SequenceId(7)}; }},
      {"starts names sequence 8, which the worker holds",
       [](StepPlan& p) { p.starts.push_back({.sequence_id = SequenceId(8)}); }},
      {"starts names sequence 9 twice", [](StepPlan& p) { p.starts.push_back(p.starts[0]); }},
      {"13 sequences; the worker holds at most 12",
       [](StepPlan& p) {
         for (uint64_t id = 20; id < 30; ++id) p.starts.push_back({.sequence_id = SequenceId(id)});
       }},
      {"history of sequence 9 holds token 100",
       [&](StepPlan& p) { p.starts[0].history[1] = too_large; }},
      {"stop_token_ids of sequence 9 holds token -1",
       [](StepPlan& p) { p.starts[0].sampling.stop_token_ids = {-1}; }},
      {"logit_bias of sequence 9 holds token 100",
       [&](StepPlan& p) { p.starts[0].sampling.logit_bias = {{too_large, 1.f}}; }},
      {"logit_bias of token 3 is not a number",
       [](StepPlan& p) {
         p.starts[0].sampling.logit_bias = {{3, std::numeric_limits<float>::quiet_NaN()}};
       }},
      {"logprobs of sequence 9 is 129; at most 128",
       [](StepPlan& p) { p.starts[0].sampling.logprobs = 129; }},
      {"temperature -1", [](StepPlan& p) { p.starts[0].sampling.temperature = -1; }},
      {"top_p 0", [](StepPlan& p) { p.starts[0].sampling.top_p = 0; }},
      {"min_p 2", [](StepPlan& p) { p.starts[0].sampling.min_p = 2; }},
      {"repetition_penalty 0", [](StepPlan& p) { p.starts[0].sampling.repetition_penalty = 0; }},
      {"presence_penalty nan",
       [](StepPlan& p) {
         p.starts[0].sampling.presence_penalty = std::numeric_limits<float>::quiet_NaN();
       }},
      {"frequency_penalty nan",
       [](StepPlan& p) {
         p.starts[0].sampling.frequency_penalty = std::numeric_limits<float>::quiet_NaN();
       }},
      {"rows names sequence 8 twice", [](StepPlan& p) { p.rows[0] = p.rows[1]; }},
      {"names sequence 99, which was not started",
       [](StepPlan& p) { p.rows[2].sequence_id = SequenceId(99); }},
      {"names sequence 8, which was not started",
       [](StepPlan& p) { p.releases = {SequenceId(8)}; }},
      {"names sequence 7, which was not started", [](StepPlan& p) { p.resets_state = true; }},
      {"the table of sequence 8 grows to 17 blocks; the model's length takes at most 16",
       [](StepPlan& p) {
         p.layer_groups[0].new_block_counts[1] = 16;
         p.layer_groups[0].new_blocks.assign(17, BlockId(4));
       }},
      {"token_count of sequence 8 is 0", [](StepPlan& p) { p.rows[1].token_count = 0; }},
      {"ends at position 66; the model ends at 64",
       [](StepPlan& p) { p.rows[1].token_count = 64; }},
      {"ends at position 4294967297", [](StepPlan& p) { p.rows[1].token_count = UINT32_MAX; }},
      {"first_position of sequence 8 is 3; only tokens before 2",
       [](StepPlan& p) { p.rows[1].first_position = 3; }},
      {"feeds the token sampled for position 5",
       [](StepPlan& p) { p.rows[1].feeds_sampled = true; }},
      {"feeds the token sampled for position 9", [](StepPlan& p) { p.rows[0].first_position = 9; }},
      {"feeds the token sampled for position 0",
       [](StepPlan& p) { p.rows[2].feeds_sampled = true; }},
      {"started without history", [](StepPlan& p) { p.rows[1].scores = true; }},
      {"computes 37 tokens; a step computes at most 32",
       [](StepPlan& p) { p.rows[1].token_count = 35; }},
      {"token_ids holds 4 tokens; the rows ask for 5", [](StepPlan& p) { p.token_ids.pop_back(); }},
      {"token_ids holds 6 tokens", [](StepPlan& p) { p.token_ids.push_back(1); }},
      {"token_ids holds 100", [&](StepPlan& p) { p.token_ids[3] = too_large; }},
      {"token_ids holds -3", [](StepPlan& p) { p.token_ids[3] = -3; }},
      {"layer_groups holds 0 entries", [](StepPlan& p) { p.layer_groups.clear(); }},
      {"layer_groups holds 2 entries",
       [](StepPlan& p) { p.layer_groups.push_back(p.layer_groups[0]); }},
      {"is layer group 1", [](StepPlan& p) { p.layer_groups[0].layer_group = LayerGroup(1); }},
      {"new_block_counts holds 2 entries for 3 rows",
       [](StepPlan& p) { p.layer_groups[0].new_block_counts.pop_back(); }},
      {"new_blocks holds 1 blocks", [](StepPlan& p) { p.layer_groups[0].new_blocks.pop_back(); }},
      {"new_block_counts add up to 4294967297",
       [](StepPlan& p) { p.layer_groups[0].new_block_counts[0] = UINT32_MAX; }},
      {"new_blocks names block 48; the pool has 48",
       [](StepPlan& p) { p.layer_groups[0].new_blocks[0] = BlockId(48); }},
      {"entry_changes names block 48",
       [](StepPlan& p) { p.layer_groups[0].entry_changes[0].block = BlockId(48); }},
      {"entry_changes names entry 3 of sequence 7",
       [](StepPlan& p) { p.layer_groups[0].entry_changes[0].index = 3; }},
      {"names sequence 99, which was not started",
       [](StepPlan& p) { p.layer_groups[0].entry_changes[0].sequence_id = SequenceId(99); }},
      {"entry_changes names entry 2 of sequence 7 twice",
       [](StepPlan& p) {
         p.layer_groups[0].entry_changes.push_back({SequenceId(7), 2, BlockId(9)});
       }},
      {"the row of sequence 8 reaches block 1 of its table, which has 1",
       [](StepPlan& p) {
         p.layer_groups[0].new_block_counts = {0, 0, 1};
         p.layer_groups[0].new_blocks = {BlockId(5)};
       }},
      {"block 4 is written by sequence 8 and by sequence 9",
       [](StepPlan& p) { p.layer_groups[0].new_blocks[1] = BlockId(4); }},
      {"copies names block 48",
       [](StepPlan& p) { p.layer_groups[0].copies[0].source = BlockId(48); }},
      {"copies names block 50",
       [](StepPlan& p) { p.layer_groups[0].copies[0].destination = BlockId(50); }},
      {"copies moves 0 tokens", [](StepPlan& p) { p.layer_groups[0].copies[0].token_count = 0; }},
      {"copies moves 5 tokens; it must be 1 to 4",
       [](StepPlan& p) { p.layer_groups[0].copies[0].token_count = 5; }},
      {"copies copies block 6 to itself",
       [](StepPlan& p) { p.layer_groups[0].copies[0].source = BlockId(6); }},
      {"copies writes block 6 twice",
       [](StepPlan& p) { p.layer_groups[0].copies.push_back({BlockId(1), BlockId(6), 1}); }},
  };
  for (const Fault& fault : faults) {
    StepPlan plan = plan_;
    fault.plant(plan);
    const SequenceTables before = tables_;
    const absl::Status status = Offer(tables_, plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.message << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(fault.message));
    EXPECT_TRUE(tables_ == before) << fault.message;
  }
  EXPECT_TRUE(Offer(tables_, plan_).ok());
}

// Sequence 8 samples first, two siblings share its logits and its blocks.
TEST_F(MalformedPlanTest, RowsShareTheLogitsOfTheNearestRowThatComputes) {
  plan_.starts.push_back({.sequence_id = SequenceId(10), .prompt_token_count = 6});
  plan_.starts.push_back({.sequence_id = SequenceId(11), .prompt_token_count = 6});
  plan_.rows[1].samples = true;
  const PlanRow shares{
      .sequence_id = SequenceId(10), .first_position = 6, .samples = true, .shares_logits = true};
  plan_.rows.insert(plan_.rows.begin() + 2, 2, shares);
  plan_.rows[3].sequence_id = SequenceId(11);
  LayerGroupChange& change = plan_.layer_groups[0];
  change.new_block_counts = {0, 1, 2, 2, 1};
  change.new_blocks = Blocks({4, 3, 4, 3, 4, 5});
  change.digest = DigestOf({{7, {0, 1, 6}}, {8, {3, 4}}, {9, {5}}, {10, {3, 4}}, {11, {3, 4}}});
  const auto refused = [&](const std::string& what, auto&& plant) {
    StepPlan bad = plan_;
    plant(bad);
    ExpectRefused(tables_, bad, absl::StatusCode::kInvalidArgument, what);
  };
  refused("not sampled above", [](StepPlan& p) { p.rows[1].samples = false; });
  refused("another position", [](StepPlan& p) { p.rows[2].first_position = 5; });
  refused("does not sample", [](StepPlan& p) { p.rows[3].samples = false; });
  refused("scores", [](StepPlan& p) { p.rows[3].scores = true; });
  refused("feeds", [](StepPlan& p) { p.rows[3].feeds_sampled = true; });
  refused("nothing above", [](StepPlan& p) { std::swap(p.rows[0], p.rows[2]); });
  refused("computes a token", [](StepPlan& p) {
    p.rows[2].token_count = 1;
    p.token_ids.push_back(5);
  });
  refused("too short a table", [](StepPlan& p) {
    p.layer_groups[0].new_block_counts[3] = 1;
    p.layer_groups[0].new_blocks = Blocks({4, 3, 4, 3, 5});
  });
  const auto offered = Offer(tables_, plan_);
  ASSERT_TRUE(offered.ok()) << offered.status();
  EXPECT_EQ(tables_.Find(SequenceId(11))->sampled_position, 6u);
  tables_.CheckInvariants();
}

}  // namespace
}  // namespace octavo
