// Policies that reserve contiguous runs, in the production engine: the baselines of paging.

#include "scheduler/core/kv_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "scheduler/core/engine.h"

namespace octavo {
namespace {

constexpr uint32_t kBlockSize = 4;
constexpr uint32_t kBlockCount = 64;
constexpr uint32_t kContextLength = 60;  // 15 blocks: a buddy's run has 16

struct Job {
  uint32_t prompt_tokens;
  uint32_t max_tokens;
};

// The engine with a worker that answers each step at once.
class Server {
 public:
  Server(KvPolicy policy, ContiguousAllocatorKind allocator)
      : engine_({.context_length = kContextLength,
                 .kv_policy = policy,
                 .contiguous_allocator = allocator,
                 .prefix_cache = false}) {
    const KvLayout layout{
        .block_size = kBlockSize, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
    engine_.Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, kBlockCount}}}, now_, actions_);
  }

  void Submit(const Job& job) {
    engine_.Handle(SubmitRequest{.request_id = RequestId(++last_id_),
                                 .prompt = std::vector<TokenId>(job.prompt_tokens, 1),
                                 .max_tokens = job.max_tokens},
                   now_, actions_);
  }

  // One step, all books checked. False: there is nothing to do.
  bool Step() {
    actions_.clear();
    if (!engine_.PlanNext(now_, actions_)) return false;
    const StepPlan plan = std::get<SendPlan>(actions_.back()).plan;
    StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
    result.digests = {plan.layer_groups[0].digest};
    for (const PlanRow& row : plan.rows) {
      if (row.samples)
        result.sampled.push_back({row.sequence_id, row.first_position + row.token_count, 5, 0, 0});
    }
    CheckTables();
    engine_.Handle(StepCompleted{std::move(result)}, now_, actions_);
    for (const Action& action : actions_) {
      if (const auto* ended = std::get_if<RequestFinished>(&action))
        reasons_.push_back(ended->reason);
    }
    EXPECT_TRUE(engine_.CheckInvariants().ok()) << engine_.CheckInvariants();
    return true;
  }

  const Engine& engine() const { return engine_; }
  const std::vector<FinishReason>& reasons() const { return reasons_; }
  uint32_t running() const { return engine_.State().running_sequences; }

 private:
  // Blocks follow each other, and every slot of the pool is counted once.
  void CheckTables() {
    uint64_t planned = 0;
    for (const RequestRecord& record : engine_.ListRequests(0, running())) {
      planned += record.planned_token_count;
      const auto table = engine_.BlockTableOf(record.request_id);
      ASSERT_TRUE(table.has_value());
      for (size_t i = 1; i < table->entries.size(); ++i)
        EXPECT_EQ(table->entries[i].block.value(), table->entries[0].block.value() + i);
    }
    const SchedulerState state = engine_.State();
    EXPECT_EQ(planned + state.waste.reserved + state.waste.internal,
              uint64_t{state.held_blocks} * kBlockSize);
  }

  const absl::Time now_ = absl::UnixEpoch();
  Engine engine_;
  std::vector<Action> actions_;
  std::vector<FinishReason> reasons_;
  uint64_t last_id_ = 0;
};

class ContiguousPolicyTest
    : public testing::TestWithParam<std::tuple<KvPolicy, ContiguousAllocatorKind>> {
 protected:
  Server server_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(ContiguousPolicyTest, EveryRequestEndsByItsLengthInOneRun) {
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    const uint32_t prompt = 1 + random() % 40;
    server_.Submit({prompt, 1 + static_cast<uint32_t>(random() % (kContextLength - prompt))});
    if (random() % 3 == 0) server_.Step();
  }
  while (server_.Step()) {
  }
  EXPECT_TRUE(server_.engine().idle());
  EXPECT_EQ(server_.reasons(), std::vector<FinishReason>(60, FinishReason::kLength));
  EXPECT_EQ(server_.engine().State().free_blocks, kBlockCount);
  EXPECT_EQ(server_.engine().Counters().preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, ContiguousPolicyTest,
                         testing::Combine(testing::Values(KvPolicy::kReserveMax,
                                                          KvPolicy::kReservePow2, KvPolicy::kOracle,
                                                          KvPolicy::kStatic),
                                          testing::Values(ContiguousAllocatorKind::kBuddy,
                                                          ContiguousAllocatorKind::kFirstFit)),
                         [](const auto& info) {
                           return std::string(KvPolicyName(std::get<0>(info.param))) + "_" +
                                  ContiguousAllocatorKindName(std::get<1>(info.param));
                         });

TEST(KvPolicyTest, WhatIsReservedLimitsWhoRuns) {
  const auto running = [](KvPolicy policy, ContiguousAllocatorKind allocator) {
    Server server(policy, allocator);
    for (int i = 0; i < 20; ++i) server.Submit({.prompt_tokens = 10, .max_tokens = 9});
    server.Step();
    return server.running();
  };
  // Of 64 blocks: 15 (16 from the buddy) for 60 tokens; 7 (8) for 10 + 16; 5 (8) for 10 + 9.
  EXPECT_EQ(running(KvPolicy::kReserveMax, ContiguousAllocatorKind::kBuddy), 4u);
  EXPECT_EQ(running(KvPolicy::kReserveMax, ContiguousAllocatorKind::kFirstFit), 4u);
  EXPECT_EQ(running(KvPolicy::kReservePow2, ContiguousAllocatorKind::kBuddy), 8u);
  EXPECT_EQ(running(KvPolicy::kReservePow2, ContiguousAllocatorKind::kFirstFit), 9u);
  EXPECT_EQ(running(KvPolicy::kOracle, ContiguousAllocatorKind::kBuddy), 8u);
  EXPECT_EQ(running(KvPolicy::kOracle, ContiguousAllocatorKind::kFirstFit), 12u);
}

TEST(KvPolicyTest, AStaticBatchEndsBeforeTheNextBegins) {
  Server server(KvPolicy::kStatic, ContiguousAllocatorKind::kBuddy);
  for (uint32_t i = 0; i < 8; ++i) server.Submit({.prompt_tokens = 5, .max_tokens = 3 + 2 * i});
  std::vector<uint32_t> running;
  while (server.Step()) running.push_back(server.running());
  // Four at a time; nobody joins before the last of them, with 9 tokens, has ended.
  const auto next = std::find(running.begin(), running.end(), 0u);
  EXPECT_EQ(next - running.begin(), 8);
  EXPECT_TRUE(std::is_sorted(running.begin(), next, std::greater<>()));
  EXPECT_EQ(*(next + 1), 4u);
}

TEST(KvPolicyTest, ARunThatNeverFitsEndsItsRequest) {
  // A run of 100 blocks in a pool of 64, for a request that would take one.
  Engine engine({.context_length = 400, .kv_policy = KvPolicy::kReserveMax, .prefix_cache = false});
  const KvLayout layout{
      .block_size = kBlockSize, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  std::vector<Action> actions;
  engine.Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, kBlockCount}}}, absl::UnixEpoch(),
                actions);
  engine.Handle(SubmitRequest{.request_id = RequestId(1), .prompt = {1, 2}, .max_tokens = 2},
                absl::UnixEpoch(), actions);
  EXPECT_FALSE(engine.PlanNext(absl::UnixEpoch(), actions));
  ASSERT_TRUE(std::holds_alternative<RequestFinished>(actions.back()));
  EXPECT_EQ(std::get<RequestFinished>(actions.back()).reason, FinishReason::kPoolExhausted);
}

}  // namespace
}  // namespace octavo
