#include "worker/exec/step_inputs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using testing::ElementsAre;

constexpr TableLimits kLimits{.layer_group_count = 1,
                              .num_blocks = 48,
                              .block_size = 4,
                              .vocab_size = 100,
                              .max_positions = 64,
                              .max_sequences = 5,
                              .max_tokens_per_step = 32};

// Sequence 5 scores a prompt of four and samples with two alternatives; sequence 6 feeds what it
// sampled.
class StepInputsTest : public testing::Test {
 protected:
  StepInputsTest() {
    StepPlan first{.step = StepNumber(1)};
    first.starts = {{.sequence_id = SequenceId(6), .seed = 66, .prompt_token_count = 3}};
    first.starts[0].sampling.min_tokens = 2;
    first.rows = {{.sequence_id = SequenceId(6), .token_count = 3, .samples = true}};
    first.token_ids = {1, 2, 3};
    first.layer_groups = {{.new_block_counts = {1}, .new_blocks = {BlockId(9)}}};
    tables_.Apply(first);

    plan_ = {.step = StepNumber(2)};
    plan_.starts = {{.sequence_id = SequenceId(5),
                     .seed = 55,
                     .prompt_token_count = 4,
                     .history = {10, 11, 12, 13}}};
    plan_.starts[0].sampling.logprobs = 2;
    plan_.rows = {{.sequence_id = SequenceId(6),
                   .first_position = 3,
                   .token_count = 1,
                   .samples = true,
                   .feeds_sampled = true},
                  {.sequence_id = SequenceId(5),
                   .first_position = 1,
                   .token_count = 3,
                   .samples = true,
                   .scores = true}};
    plan_.token_ids = {11, 12, 13};
    plan_.layer_groups = {{.new_block_counts = {0, 1},
                           .new_blocks = {BlockId(4)},
                           .copies = {{BlockId(7), BlockId(4), 1}}}};
    tables_.Apply(plan_);
    FillStepInputs(plan_, tables_, inputs_, label_);
  }

  uint32_t SlotOf(uint64_t id) const { return tables_.Find(SequenceId(id))->slot; }

  SequenceTables tables_{ReplicaId(0), Epoch(0), kLimits};
  StepPlan plan_;
  StepInputs inputs_;
  StepLabel label_;
};

TEST_F(StepInputsTest, TokensPositionsAndTablesLieFlatRowAfterRow) {
  EXPECT_THAT(inputs_.token_ids, ElementsAre(0, 11, 12, 13));
  EXPECT_THAT(inputs_.positions, ElementsAre(3, 1, 2, 3));
  EXPECT_THAT(inputs_.token_sequences, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(inputs_.sequences,
              ElementsAre(SequenceRows{0, 1, 3, SlotOf(6)}, SequenceRows{1, 3, 1, SlotOf(5)}));
  EXPECT_THAT(inputs_.groups[0].block_tables, ElementsAre(9, 4));
  EXPECT_THAT(inputs_.groups[0].table_offsets, ElementsAre(0, 1));
  EXPECT_THAT(inputs_.groups[0].copies, ElementsAre(kernels::SlotCopy{7, 4, 1}));
}

TEST_F(StepInputsTest, AFedTokenNamesTheSlotItComesFrom) {
  EXPECT_THAT(inputs_.fed_tokens, ElementsAre(FedToken{.token = 0, .slot = SlotOf(6)}));
}

TEST_F(StepInputsTest, OnlyStartedSequencesFillTheirSlots) {
  ASSERT_EQ(inputs_.slot_starts.size(), 1u);
  EXPECT_EQ(inputs_.slot_starts[0].slot, SlotOf(5));
  EXPECT_EQ(inputs_.slot_starts[0].seed, 55u);
  EXPECT_TRUE(inputs_.slot_starts[0].history.empty()) << "no penalty needs it";
}

TEST_F(StepInputsTest, LogitsRowsScoreKnownTokensAndSampleTheNext) {
  const uint32_t slot = SlotOf(5);
  EXPECT_THAT(
      inputs_.logits_rows,
      ElementsAre(
          LogitsRow{
              .token = 0, .slot = SlotOf(6), .position = 4, .samples = true, .stop_allowed = false},
          LogitsRow{.token = 1,
                    .slot = slot,
                    .position = 2,
                    .target = 12,
                    .wants_logprob = true,
                    .top_count = 2},
          LogitsRow{.token = 2,
                    .slot = slot,
                    .position = 3,
                    .target = 13,
                    .wants_logprob = true,
                    .top_count = 2},
          LogitsRow{.token = 3,
                    .slot = slot,
                    .position = 4,
                    .samples = true,
                    .wants_logprob = true,
                    .top_count = 2}));
}

TEST_F(StepInputsTest, ResultsListSampledThenScoredWithTheirAlternatives) {
  StepOutputs outputs;
  outputs.outcomes = {{.token_id = 42},
                      {.token_id = 12, .logprob = -1, .top = {{1, -.5f}, {12, -1}}},
                      {.token_id = 13, .logprob = -2, .top = {{13, -2}, {2, -3}}},
                      {.token_id = 50, .logprob = -3, .top = {{50, -3}, {3, -4}}}};
  const StepResult result = MakeStepResult(label_, inputs_, outputs);
  EXPECT_EQ(result.step, StepNumber(2));
  EXPECT_EQ(result.digests, tables_.digests());
  EXPECT_THAT(result.sampled, ElementsAre(TokenOutcome{SequenceId(6), 4, 42, 0, 0},
                                          TokenOutcome{SequenceId(5), 4, 50, -3, 2}));
  EXPECT_THAT(result.scored, ElementsAre(TokenOutcome{SequenceId(5), 2, 12, -1, 2},
                                         TokenOutcome{SequenceId(5), 3, 13, -2, 2}));
  EXPECT_THAT(result.top,
              ElementsAre(TokenLogprob{50, -3}, TokenLogprob{3, -4}, TokenLogprob{1, -.5f},
                          TokenLogprob{12, -1}, TokenLogprob{13, -2}, TokenLogprob{2, -3}));
  EXPECT_TRUE(result.failed.empty());
}

TEST_F(StepInputsTest, ASequenceWithALogitsRowThatIsNotFiniteFailsWhole) {
  StepOutputs outputs;
  outputs.outcomes = {{.token_id = 42}, {.finite = false}, {.token_id = 13}, {.token_id = 50}};
  const StepResult result = MakeStepResult(label_, inputs_, outputs);
  EXPECT_THAT(result.failed, ElementsAre(SequenceId(5)));
  EXPECT_THAT(result.sampled, ElementsAre(TokenOutcome{SequenceId(6), 4, 42, 0, 0}));
  EXPECT_TRUE(result.scored.empty());
}

// The samples of one prompt: one computes, all choose from its logits.
TEST_F(StepInputsTest, RowsThatShareLogitsAreChoicesAndNoTokens) {
  StepPlan plan{.step = StepNumber(3)};
  plan.layer_groups.resize(1);
  for (const uint64_t id : {7, 8, 9}) {
    plan.starts.push_back({.sequence_id = SequenceId(id), .seed = id, .prompt_token_count = 3});
    plan.rows.push_back({.sequence_id = SequenceId(id),
                         .first_position = id == 7 ? 0u : 3u,
                         .token_count = id == 7 ? 3u : 0u,
                         .samples = true,
                         .shares_logits = id != 7});
    plan.layer_groups[0].new_block_counts.push_back(1);
    plan.layer_groups[0].new_blocks.push_back(BlockId(9));
  }
  plan.token_ids = {1, 2, 3};
  tables_.Apply(plan);
  FillStepInputs(plan, tables_, inputs_, label_);
  ASSERT_EQ(inputs_.sequences.size(), 1u);
  EXPECT_EQ(inputs_.sequences[0].slot, SlotOf(7));
  EXPECT_EQ(inputs_.token_count(), 3u);
  EXPECT_EQ(inputs_.groups[0].table_offsets.size(), 1u);
  EXPECT_THAT(
      inputs_.logits_rows,
      ElementsAre(LogitsRow{.token = 2, .slot = SlotOf(7), .position = 3, .samples = true},
                  LogitsRow{.token = 2, .slot = SlotOf(8), .position = 3, .samples = true},
                  LogitsRow{.token = 2, .slot = SlotOf(9), .position = 3, .samples = true}));
  EXPECT_THAT(inputs_.logits_sources,
              ElementsAre(LogitsSource{.token = 2, .first_row = 0, .row_count = 3}));
  EXPECT_THAT(label_.logits_sequences, ElementsAre(SequenceId(7), SequenceId(8), SequenceId(9)));
}

TEST_F(StepInputsTest, FillingAgainReplacesWhatWasThere) {
  StepInputs again = inputs_;
  StepLabel label = label_;
  FillStepInputs(plan_, tables_, again, label);
  EXPECT_EQ(again, inputs_);
}

}  // namespace
}  // namespace octavo
