#include "scheduler/runtime/fleet.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

class FleetTest : public testing::Test, public WorkerEvents {
 protected:
  static FleetOptions Options() {
    FleetOptions options;
    options.model_fingerprint = 42;
    options.layout = SmallLayout();
    options.max_step_tokens = 64;
    options.max_sequences = 8;
    return options;
  }

  void OnModelLoaded(LinkId, absl::StatusOr<LoadedModel>) override {}
  void OnReplicaStarted(LinkId, absl::Status) override {}
  void OnResult(LinkId, StepResult) override {}
  void OnStreamEnded(LinkId, absl::Status) override {}

  absl::StatusOr<WorkerState> Register(Fleet& fleet, const WorkerDescription& worker,
                                       bool draining = false) {
    return fleet.Register(worker, draining, now_, events_);
  }
  void MakeReady(Fleet& fleet, const std::string& instance = "a") {
    ASSERT_TRUE(Register(fleet, SmallWorker(instance)).ok());
    fleet.OnModelLoaded(dialer_.last().id, SmallLoadedModel(), now_, events_);
    fleet.OnReplicaStarted(dialer_.last().id, absl::OkStatus(), now_, events_);
    ASSERT_TRUE(fleet.ready());
    events_.clear();
  }
  StepPlan Plan(uint64_t step) {
    StepPlan plan;
    plan.epoch = dialer_.last().starts.back().epoch;
    plan.step = StepNumber(step);
    plan.rows = {{.sequence_id = SequenceId(1), .token_count = 1}};
    return plan;
  }
  template <typename T>
  int Count() const {
    int count = 0;
    for (const Event& event : events_) count += std::holds_alternative<T>(event);
    return count;
  }

  FakeDialer dialer_;
  std::vector<Event> events_;
  absl::Time now_ = absl::FromUnixMillis(1000);
};

TEST_F(FleetTest, LeadsAWorkerFromRegistrationToAReadyReplica) {
  Fleet fleet(Options(), &dialer_, this);
  EXPECT_EQ(*Register(fleet, SmallWorker("a")), WorkerState::kLoading);
  ASSERT_EQ(dialer_.links.size(), 1u);
  EXPECT_EQ(dialer_.last().address, "worker:1");
  ASSERT_EQ(dialer_.last().loads.size(), 1u);
  EXPECT_EQ(dialer_.last().loads[0], (LoadModelCall{.model_fingerprint = 42,
                                                    .world_size = 1,
                                                    .block_size = 4,
                                                    .max_step_tokens = 64,
                                                    .max_sequences = 8}));
  fleet.OnModelLoaded(dialer_.last().id, SmallLoadedModel(), now_, events_);
  ASSERT_EQ(dialer_.last().starts.size(), 1u);
  EXPECT_EQ(dialer_.last().starts[0].block_count, 64u);
  EXPECT_EQ(dialer_.last().starts[0].epoch, Epoch(1000)) << "epochs begin at the clock";
  EXPECT_FALSE(fleet.ready());
  fleet.OnReplicaStarted(dialer_.last().id, absl::OkStatus(), now_, events_);
  EXPECT_TRUE(fleet.ready());
  EXPECT_EQ(dialer_.last().streams, 1);
  ASSERT_EQ(events_.size(), 1u);
  const auto& ready = std::get<ReplicaReady>(events_[0]);
  EXPECT_EQ(ready.epoch, Epoch(1000));
  EXPECT_EQ(ready.layer_groups.at(0).block_count, 64u);
  EXPECT_EQ(*Register(fleet, SmallWorker("a")), WorkerState::kReady)
      << "a heartbeat changes nothing";
  EXPECT_EQ(dialer_.links.size(), 1u);
}

TEST_F(FleetTest, RefusesWorkersItCannotUseWithTheNumbers) {
  Fleet fleet(Options(), &dialer_, this);
  WorkerDescription worker = SmallWorker("a");
  worker.model_fingerprint = 43;
  absl::Status status = Register(fleet, worker).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "ANOTHER_MODEL");
  EXPECT_THAT(std::string(status.message()), HasSubstr("0x000000000000002b"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("0x000000000000002a"));
  worker = SmallWorker("a");
  worker.min_block_size = 8;
  status = Register(fleet, worker).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "BLOCK_SIZE_UNSUPPORTED");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("block size 4 is outside the worker's range 8 to 256"));
  status = Register(fleet, SmallWorker("a"), /*draining=*/true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  EXPECT_TRUE(dialer_.links.empty());
}

TEST_F(FleetTest, RefusesANumberOfBlocksThatDoesNotFit) {
  FleetOptions options = Options();
  options.pool_size.block_count = 129;
  Fleet fleet(options, &dialer_, this);
  ASSERT_TRUE(Register(fleet, SmallWorker("a")).ok());
  fleet.OnModelLoaded(dialer_.last().id, SmallLoadedModel(64), now_, events_);
  EXPECT_TRUE(dialer_.last().starts.empty());
  EXPECT_THAT(fleet.workers().at("a").detail, HasSubstr("--num_blocks=129 does not fit"));
  EXPECT_THAT(fleet.workers().at("a").detail, HasSubstr("at most 128 blocks"));
}

TEST_F(FleetTest, RefusesAPoolThatHoldsNoRequestOfTheLengthAskedFor) {
  for (const bool asked : {true, false}) {
    FleetOptions options = Options();
    options.pool_size.block_count = 3;
    options.context_length = 4 * options.layout.block_size;
    options.context_length_asked = asked;
    Fleet fleet(options, &dialer_, this);
    ASSERT_TRUE(Register(fleet, SmallWorker("a")).ok());
    fleet.OnModelLoaded(dialer_.last().id, SmallLoadedModel(64), now_, events_);
    if (asked) {
      EXPECT_TRUE(dialer_.last().starts.empty());
      EXPECT_THAT(fleet.workers().at("a").detail,
                  testing::AllOf(HasSubstr("takes 4 blocks"), HasSubstr("(--num_blocks=3) has 3")));
    } else {
      EXPECT_EQ(dialer_.last().starts.size(), 1u);
      EXPECT_EQ(fleet.pool_plan()->full_length_tokens, 3 * options.layout.block_size);
    }
  }
}

// The scheduler's own memory does not depend on what a worker claims to have.
TEST_F(FleetTest, TakesNoMoreBlocksThanItsLimitWhateverAWorkerOffers) {
  FleetOptions options = Options();
  options.max_pool_blocks = 100;
  Fleet fleet(options, &dialer_, this);
  ASSERT_TRUE(Register(fleet, SmallWorker("a")).ok());
  LoadedModel loaded = SmallLoadedModel();
  loaded.memory_plan.block_count = loaded.memory_plan.max_block_count = UINT32_MAX;
  fleet.OnModelLoaded(dialer_.last().id, loaded, now_, events_);
  ASSERT_EQ(dialer_.last().starts.size(), 1u);
  EXPECT_EQ(dialer_.last().starts[0].block_count, 100u);
}

TEST_F(FleetTest, RefusesAnotherKvLayout) {
  Fleet fleet(Options(), &dialer_, this);
  ASSERT_TRUE(Register(fleet, SmallWorker("a")).ok());
  LoadedModel loaded = SmallLoadedModel();
  ++loaded.kv_layout_fingerprint;
  fleet.OnModelLoaded(dialer_.last().id, loaded, now_, events_);
  EXPECT_EQ(fleet.workers().at("a").state, WorkerState::kLost);
  EXPECT_THAT(fleet.workers().at("a").detail, HasSubstr("KV layouts differ"));
}

TEST_F(FleetTest, ALostStreamLosesTheReplicaAndTheNextRegistrationStartsItInAHigherEpoch) {
  Fleet fleet(Options(), &dialer_, this);
  MakeReady(fleet);
  const LinkId first = dialer_.last().id;
  fleet.OnStreamEnded(first, absl::UnavailableError("connection reset"), now_, events_);
  EXPECT_EQ(Count<ReplicaLost>(), 1);
  EXPECT_FALSE(fleet.ready());
  EXPECT_TRUE(dialer_.links[0]->closed);
  EXPECT_EQ(*Register(fleet, SmallWorker("a")), WorkerState::kLost)
      << "not before its wait is over";
  now_ += absl::Seconds(1);
  EXPECT_EQ(*Register(fleet, SmallWorker("a")), WorkerState::kLoading);
  ASSERT_EQ(dialer_.links.size(), 2u);
  fleet.OnModelLoaded(first, SmallLoadedModel(), now_, events_);
  EXPECT_TRUE(dialer_.last().starts.empty()) << "what the old link says is stale";
  fleet.OnModelLoaded(dialer_.last().id, SmallLoadedModel(), now_, events_);
  EXPECT_EQ(dialer_.last().starts.at(0).epoch, Epoch(2000));
}

TEST_F(FleetTest, ASpareTakesThePlaceOfALostWorker) {
  Fleet fleet(Options(), &dialer_, this);
  MakeReady(fleet, "a");
  EXPECT_EQ(*Register(fleet, SmallWorker("b", "worker:2")), WorkerState::kRegistered);
  fleet.OnStreamEnded(dialer_.last().id, absl::UnavailableError("gone"), now_, events_);
  EXPECT_EQ(*Register(fleet, SmallWorker("b", "worker:2")), WorkerState::kLoading);
  EXPECT_EQ(dialer_.last().address, "worker:2");
}

TEST_F(FleetTest, AProcessThatStartedAnewReplacesTheOldOneAtItsAddress) {
  Fleet fleet(Options(), &dialer_, this);
  MakeReady(fleet, "a");
  EXPECT_EQ(*Register(fleet, SmallWorker("b")), WorkerState::kLoading);
  EXPECT_EQ(Count<ReplicaLost>(), 1);
  EXPECT_EQ(fleet.workers().at("a").state, WorkerState::kLost);
}

TEST_F(FleetTest, ARefusedPlanOpensTheStreamAgainOnTheSameLink) {
  Fleet fleet(Options(), &dialer_, this);
  MakeReady(fleet);
  fleet.SendPlan(Plan(1), now_);
  fleet.SendPlan(Plan(2), now_);
  fleet.OnStreamEnded(dialer_.last().id, absl::FailedPreconditionError("digest"), now_, events_);
  ASSERT_EQ(Count<StepRefused>(), 1);
  EXPECT_EQ(std::get<StepRefused>(events_[0]).step, StepNumber(1)) << "the oldest unanswered";
  EXPECT_EQ(dialer_.last().streams, 2);
  EXPECT_TRUE(fleet.ready());
}

TEST_F(FleetTest, AnOverduePlanMeansAHungWorkerAndResultsPutItOff) {
  Fleet fleet(Options(), &dialer_, this);
  MakeReady(fleet);
  EXPECT_EQ(fleet.NextDeadline(), absl::InfiniteFuture());
  fleet.SendPlan(Plan(1), now_);
  fleet.SendPlan(Plan(2), now_);
  const absl::Time first_deadline = fleet.NextDeadline();
  EXPECT_GE(first_deadline - now_, absl::Seconds(5));
  now_ += absl::Seconds(4);
  StepResult result;
  result.epoch = dialer_.last().starts.back().epoch;
  result.step = StepNumber(1);
  const auto sample = fleet.OnResult(dialer_.last().id, result, now_, events_);
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->duration, absl::Seconds(4));
  EXPECT_EQ(fleet.NextDeadline(), first_deadline + absl::Seconds(4))
      << "step 2 began when step 1 was done";
  events_.clear();
  now_ = fleet.NextDeadline();
  fleet.CheckDeadline(now_, events_);
  EXPECT_EQ(Count<ReplicaLost>(), 1);
  EXPECT_THAT(fleet.workers().at("a").detail, HasSubstr("the worker hangs"));
}

TEST_F(FleetTest, ARejectedReplicaIsDroppedWithoutTellingTheEngineAgain) {
  Fleet fleet(Options(), &dialer_, this);
  MakeReady(fleet);
  fleet.DropReplica(dialer_.last().starts.back().epoch, absl::InternalError("nonsense"), now_);
  EXPECT_FALSE(fleet.ready());
  EXPECT_TRUE(events_.empty());
}

}  // namespace
}  // namespace octavo
