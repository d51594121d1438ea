// The executor's own rules, on a small generated model: order of answers, repeats, refusals,
// limits, failures, copies.

#include "worker/exec/executor.h"

#include <future>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/exec/driver.h"

namespace octavo {
namespace {

using testing::HasSubstr;

const LoadedModel& Shared() {
  static const LoadedModel* const kModel =
      new LoadedModel(LoadedModel::Load(std::string(OCTAVO_BUILD_DIR) + "/models/q4_1_q8_0.gguf", 2,
                                        kernels::DetectIsa(), /*max_tokens_per_step=*/64));
  return *kModel;
}

constexpr Epoch kEpoch(4);

class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest()
      : executor_(Shared().MakeExecutor({.replica_id = ReplicaId(2),
                                         .epoch = kEpoch,
                                         .rank = 1,
                                         .num_blocks = 32,
                                         .max_sequences = 8})) {}

  // Plans of one greedy sequence `id` over consecutive blocks: the first computes `prompt`, the
  // next feed what was sampled.
  StepPlan Start(uint64_t id, const std::vector<TokenId>& prompt) {
    StepPlan plan = Empty();
    plan.starts = {{.sequence_id = SequenceId(id),
                    .prompt_token_count = static_cast<uint32_t>(prompt.size())}};
    plan.starts[0].sampling.temperature = 0;
    plan.rows = {{.sequence_id = SequenceId(id),
                  .token_count = static_cast<uint32_t>(prompt.size()),
                  .samples = true}};
    plan.token_ids = prompt;
    plan.layer_groups[0].new_block_counts = {1};
    plan.layer_groups[0].new_blocks = {BlockId(next_block_)};
    digest_ += EntryDigest(SequenceId(id), 0, BlockId(next_block_++));
    plan.layer_groups[0].digest = digest_;
    return plan;
  }
  StepPlan Feed(uint64_t id, uint32_t position) {
    StepPlan plan = Empty();
    plan.rows = {{.sequence_id = SequenceId(id),
                  .first_position = position,
                  .token_count = 1,
                  .samples = true,
                  .feeds_sampled = true}};
    plan.layer_groups[0].new_block_counts = {0};
    plan.layer_groups[0].digest = digest_;
    return plan;
  }
  StepPlan Empty() {
    return {.replica_id = ReplicaId(2),
            .epoch = kEpoch,
            .step = StepNumber(++step_),
            .layer_groups = {LayerGroupChange{}}};
  }

  std::future<absl::StatusOr<StepResult>> Submit(const StepPlan& plan) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<StepResult>>>();
    executor_->Submit(plan, [promise](absl::StatusOr<StepResult> result) {
      promise->set_value(std::move(result));
    });
    return promise->get_future();
  }

  std::unique_ptr<Executor> executor_;
  uint64_t step_ = 0;
  uint64_t digest_ = 0;
  uint32_t next_block_ = 0;
};

TEST_F(ExecutorTest, AResultCarriesThePlansNumbersAndTheTablesDigest) {
  const StepPlan plan = Start(1, {5, 6, 7});
  const absl::StatusOr<StepResult> result = executor_->Execute(plan);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->replica_id, ReplicaId(2));
  EXPECT_EQ(result->epoch, kEpoch);
  EXPECT_EQ(result->step, StepNumber(1));
  EXPECT_EQ(result->rank, 1u);
  EXPECT_EQ(result->digests, std::vector<uint64_t>{digest_});
  ASSERT_EQ(result->sampled.size(), 1u);
  EXPECT_EQ(result->sampled[0].position, 3u);
  EXPECT_EQ(result->sampled[0].logprob, 0) << "nobody asked for it";
  EXPECT_GT(result->timings.prepare_ns, 0u);
  EXPECT_GT(result->timings.forward_ns, 0u);
  EXPECT_GT(result->timings.sample_ns, 0u);
  EXPECT_EQ(executor_->GetState(), (ExecutorState{kEpoch, StepNumber(1), 1, {digest_}}));
}

TEST_F(ExecutorTest, ARepeatedPlanIsAnsweredFromTheStoredResultOfTheLastFour) {
  std::vector<StepPlan> plans = {Start(1, {5, 6, 7})};
  for (uint32_t i = 0; i < 5; ++i) plans.push_back(Feed(1, 3 + i));
  std::vector<StepResult> results;
  for (const StepPlan& plan : plans) results.push_back(*executor_->Execute(plan));
  for (size_t i = 2; i < plans.size(); ++i)
    EXPECT_EQ(*executor_->Execute(plans[i]), results[i]) << "plan " << i;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(executor_->Execute(plans[i]).status().code(), absl::StatusCode::kFailedPrecondition)
        << "plan " << i;
  }
  EXPECT_TRUE(executor_->Execute(Feed(1, 8)).ok());
}

TEST_F(ExecutorTest, APlanRepeatedWhileItRunsIsAppliedOnceAndAnsweredTwice) {
  const StepPlan plan = Start(1, {5, 6, 7});
  auto first = Submit(plan);
  auto second = Submit(plan);
  const absl::StatusOr<StepResult> result = first.get();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*second.get(), *result);
  EXPECT_EQ(executor_->GetState().step, StepNumber(1));
}

TEST_F(ExecutorTest, TheSampledTokenIsFedWithoutWaitingForIt) {
  std::vector<TokenId> waited;
  {
    std::vector<StepPlan> plans = {Start(1, {9, 8, 7})};
    for (uint32_t i = 0; i < 6; ++i) plans.push_back(Feed(1, 3 + i));
    for (const StepPlan& plan : plans)
      waited.push_back(executor_->Execute(plan)->sampled.at(0).token_id);
  }
  // Again as another sequence, two steps in flight.
  std::vector<TokenId> piped;
  std::deque<std::future<absl::StatusOr<StepResult>>> in_flight;
  const auto take = [&] {
    piped.push_back(in_flight.front().get()->sampled.at(0).token_id);
    in_flight.pop_front();
  };
  in_flight.push_back(Submit(Start(2, {9, 8, 7})));
  for (uint32_t i = 0; i < 6; ++i) {
    in_flight.push_back(Submit(Feed(2, 3 + i)));
    take();
  }
  take();
  EXPECT_EQ(piped, waited);
}

TEST_F(ExecutorTest, ARefusedPlanChangesNothingAndIsAnsweredAfterTheStepsBeforeIt) {
  std::vector<int> order;
  StepPlan good = Start(1, {5, 6, 7});
  StepPlan bad = Feed(1, 3);
  bad.layer_groups[0].digest ^= 1;
  std::promise<absl::Status> refused;
  executor_->Submit(
      good, [&](absl::StatusOr<StepResult> result) { order.push_back(result.ok() ? 1 : -1); });
  executor_->Submit(bad, [&](absl::StatusOr<StepResult> result) {
    order.push_back(2);
    refused.set_value(result.status());
  });
  absl::Status status = refused.get_future().get();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const auto reason = TakeReason(status);
  ASSERT_TRUE(reason.has_value());
  EXPECT_TRUE(reason->numbers.contains("worker_digest"));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  bad.layer_groups[0].digest ^= 1;
  EXPECT_TRUE(executor_->Execute(bad).ok());
}

TEST_F(ExecutorTest, AThirdStepInFlightIsRefused) {
  // `done` runs on the executor's thread: held up there, the step's successors stay in flight.
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  executor_->Submit(Start(1, {5, 6, 7}), [gate](absl::StatusOr<StepResult>) { gate.wait(); });
  std::vector<std::future<absl::StatusOr<StepResult>>> more;
  absl::Status refused;
  uint32_t position = 3;
  // The first may or may not be answered yet; at most kStepsInFlight more are taken.
  for (uint32_t i = 0; i < kStepsInFlight + 1 && refused.ok(); ++i) {
    auto answer = Submit(Feed(1, position++));
    if (answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      refused = answer.get().status();
    } else {
      more.push_back(std::move(answer));
    }
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 steps are in flight"));
  go.set_value();
  for (auto& answer : more) EXPECT_TRUE(answer.get().ok());
}

TEST_F(ExecutorTest, DestroyingItAnswersEveryPlanFirst) {
  auto first = Submit(Start(1, {5, 6, 7}));
  auto second = Submit(Feed(1, 3));
  executor_.reset();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(ExecutorTest, AStepWithoutRowsOnlyReleases) {
  ASSERT_TRUE(executor_->Execute(Start(1, {5, 6, 7})).ok());
  StepPlan plan = Empty();
  plan.releases = {SequenceId(1)};
  const absl::StatusOr<StepResult> result = executor_->Execute(plan);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->sampled.empty());
  EXPECT_EQ(executor_->GetState().sequence_count, 0u);
}

TEST_F(ExecutorTest, LogitsThatAreNotFiniteFailTheirSequenceAlone) {
  Request good{.prompt = {1, 2, 3}, .max_tokens = 3};
  good.sampling.temperature = 0;
  Request bad = good;
  bad.sampling.logit_bias = {{7, std::numeric_limits<float>::infinity()}};
  executor_ = Shared().MakeExecutor({.num_blocks = 32});
  const std::vector<Answer> alone = Driver(*executor_).Run({good}, {});
  executor_ = Shared().MakeExecutor({.num_blocks = 32});
  for (bool pipelined : {false, true}) {
    executor_ = Shared().MakeExecutor({.num_blocks = 32});
    const std::vector<Answer> answers =
        Driver(*executor_).Run({bad, good}, {.pipelined = pipelined});
    EXPECT_TRUE(answers[0].failed);
    EXPECT_TRUE(answers[0].tokens.empty());
    EXPECT_EQ(answers[1], alone[0]);
  }
}

TEST_F(ExecutorTest, StopTokensAreNotChosenBeforeMinTokens) {
  Request request{.prompt = {1, 2, 3}, .max_tokens = 6};
  request.sampling.temperature = 0;
  executor_ = Shared().MakeExecutor({.num_blocks = 32});
  const TokenId first = Driver(*executor_).Run({request}, {})[0].tokens[0];
  request.sampling.stop_token_ids = {first};
  request.sampling.min_tokens = 2;
  executor_ = Shared().MakeExecutor({.num_blocks = 32});
  const Answer answer = Driver(*executor_).Run({request}, {})[0];
  EXPECT_NE(answer.tokens[0], first);
  EXPECT_NE(answer.tokens[1], first);
}

TEST_F(ExecutorTest, ASharedBlockAndACopiedOneGiveTheSameBytes) {
  // Twenty tokens lie in blocks 0 and 1 of sequence 1. Sequence 2 has the same first 19: it shares
  // block 0, takes a copy of the first three slots of block 1, and computes the rest.
  std::vector<TokenId> prompt;
  for (TokenId t = 0; t < 24; ++t) prompt.push_back(3 * t + 1);
  StepPlan first = Start(1, std::vector<TokenId>(prompt.begin(), prompt.begin() + 16));
  first.rows[0].token_count = 20;
  first.token_ids.assign(prompt.begin(), prompt.begin() + 20);
  first.token_ids[19] = 500;  // differs from sequence 2's
  first.layer_groups[0].new_block_counts = {2};
  first.layer_groups[0].new_blocks = {BlockId(0), BlockId(1)};
  digest_ += EntryDigest(SequenceId(1), 1, BlockId(1));
  first.layer_groups[0].digest = digest_;
  ASSERT_TRUE(executor_->Execute(first).ok());

  StepPlan second = Empty();
  const auto start = [&](uint64_t id) {
    SequenceStart s{.sequence_id = SequenceId(id), .prompt_token_count = 24};
    s.sampling.temperature = 0;
    s.sampling.logprobs = 5;
    return s;
  };
  second.starts = {start(2)};
  second.rows = {
      {.sequence_id = SequenceId(2), .first_position = 19, .token_count = 5, .samples = true}};
  second.token_ids.assign(prompt.begin() + 19, prompt.end());
  second.layer_groups[0].new_block_counts = {2};
  second.layer_groups[0].new_blocks = {BlockId(0), BlockId(2)};
  second.layer_groups[0].copies = {{BlockId(1), BlockId(2), 3}};
  digest_ += EntryDigest(SequenceId(2), 0, BlockId(0)) + EntryDigest(SequenceId(2), 1, BlockId(2));
  second.layer_groups[0].digest = digest_;
  const absl::StatusOr<StepResult> warm = executor_->Execute(second);
  ASSERT_TRUE(warm.ok()) << warm.status();

  StepPlan third = Empty();
  third.starts = {start(3)};
  third.rows = {{.sequence_id = SequenceId(3), .token_count = 24, .samples = true}};
  third.token_ids = prompt;
  third.layer_groups[0].new_block_counts = {2};
  third.layer_groups[0].new_blocks = {BlockId(20), BlockId(21)};
  digest_ +=
      EntryDigest(SequenceId(3), 0, BlockId(20)) + EntryDigest(SequenceId(3), 1, BlockId(21));
  third.layer_groups[0].digest = digest_;
  const absl::StatusOr<StepResult> cold = executor_->Execute(third);
  ASSERT_TRUE(cold.ok()) << cold.status();
  EXPECT_EQ(warm->sampled.at(0).token_id, cold->sampled.at(0).token_id);
  EXPECT_EQ(warm->sampled.at(0).logprob, cold->sampled.at(0).logprob);
  EXPECT_EQ(warm->top, cold->top);
}

TEST_F(ExecutorTest, CopiesOfOnePlanReadTheirSourcesBeforeAnyWrite) {
  // Blocks 0 and 1 hold two prompts; one plan swaps them, and both sequences go on as if nothing
  // had happened.
  const std::vector<TokenId> a = {1, 2, 3}, b = {40, 50, 60};
  const TokenId next_a = executor_->Execute(Start(1, a))->sampled.at(0).token_id;
  const TokenId next_b = executor_->Execute(Start(2, b))->sampled.at(0).token_id;
  StepPlan swap = Empty();
  swap.rows = {
      {.sequence_id = SequenceId(1), .first_position = 2, .token_count = 1, .samples = true},
      {.sequence_id = SequenceId(2), .first_position = 2, .token_count = 1, .samples = true}};
  swap.token_ids = {3, 60};
  swap.layer_groups[0].new_block_counts = {0, 0};
  swap.layer_groups[0].entry_changes = {{SequenceId(1), 0, BlockId(1)},
                                        {SequenceId(2), 0, BlockId(0)}};
  swap.layer_groups[0].copies = {{BlockId(0), BlockId(1), 3}, {BlockId(1), BlockId(0), 3}};
  swap.layer_groups[0].digest =
      EntryDigest(SequenceId(1), 0, BlockId(1)) + EntryDigest(SequenceId(2), 0, BlockId(0));
  const absl::StatusOr<StepResult> result = executor_->Execute(swap);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sampled.at(0).token_id, next_a);
  EXPECT_EQ(result->sampled.at(1).token_id, next_b);
}

TEST_F(ExecutorTest, OptionsOutOfRangeAreRefusedWithTheirLimits) {
  const auto status_of = [](const ExecutorOptions& options) {
    return Executor::Create(*Shared().model, options).status();
  };
  EXPECT_THAT(std::string(status_of({.block_size = 0}).message()), HasSubstr("block_size is 0"));
  EXPECT_THAT(std::string(status_of({.block_size = 257}).message()),
              HasSubstr("block_size is 257"));
  EXPECT_THAT(std::string(status_of({.max_sequences = 0}).message()),
              HasSubstr("max_sequences is 0"));
  EXPECT_EQ(status_of({.num_blocks = UINT32_MAX}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ModelLoadTest, WhatIsNotServedIsRefused) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = CreateCpuBackend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  const std::string path = std::string(OCTAVO_BUILD_DIR) + "/models/q4_1_q8_0.gguf";
  const absl::Status status =
      Model::Load(*GgufFile::Open(path), **backend, {.max_tokens_per_step = 0}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("max_tokens_per_step is 0; it must be 1 to 65536"));
}

TEST(CpuBackendTest, OptionsOutOfRangeAreRefused) {
  EXPECT_EQ(CreateCpuBackend({.threads = kMaxCpuThreads + 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseIsa("sse9").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ParseIsa("auto"), kernels::DetectIsa());
  EXPECT_EQ(*ParseIsa("scalar"), kernels::Isa::kScalar);
}

}  // namespace
}  // namespace octavo
