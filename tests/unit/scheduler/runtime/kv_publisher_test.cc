#include "scheduler/runtime/kv_publisher.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

class FakeWatcher final : public KvEventSink {
 public:
  bool Write(std::shared_ptr<const std::vector<KvEvent>> written) override {
    if (!keeps_up) return false;
    for (const KvEvent& event : *written) kinds += "src"[event.change.index()];
    last = std::move(written);
    return true;
  }
  void End(absl::Status status) override { ends.push_back(std::move(status)); }
  bool gone() const override { return is_gone; }

  bool keeps_up = true;
  bool is_gone = false;
  std::string kinds;  // stored, removed, cleared
  std::shared_ptr<const std::vector<KvEvent>> last;
  std::vector<absl::Status> ends;
};

class KvPublisherTest : public testing::Test {
 protected:
  KvPublisherTest() : engine_(Options()), publisher_(&engine_) {
    Send(ReplicaReady{ReplicaId(0), Epoch(1), {{SmallLayout(), 16}}});
  }
  static EngineOptions Options() {
    EngineOptions options;
    options.context_length = 64;
    return options;
  }
  void Send(Event event) { engine_.Handle(std::move(event), absl::UnixEpoch(), actions_); }
  // Computes a prompt of a block and a token, and one token more: two blocks are stored.
  void Run(TokenId token) {
    SubmitRequest request{.request_id = RequestId(++requests_), .prompt = {token, 1, 2, 3, 4}};
    request.max_tokens = 1;
    Send(std::move(request));
    ASSERT_TRUE(engine_.PlanNext(absl::UnixEpoch(), actions_));
    const StepPlan plan = std::get<SendPlan>(actions_.back()).plan;
    StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
    result.digests = {plan.layer_groups[0].digest};
    result.sampled.push_back({plan.rows[0].sequence_id, 5, 9, 0, 0});
    Send(StepCompleted{std::move(result)});
    publisher_.Publish();
  }
  std::shared_ptr<FakeWatcher> Watch() {
    auto watcher = std::make_shared<FakeWatcher>();
    const absl::Status added = publisher_.Add(watcher);
    EXPECT_TRUE(added.ok()) << added;
    return watcher;
  }

  Engine engine_;
  KvPublisher publisher_;
  std::vector<Action> actions_;
  uint64_t requests_ = 0;
};

TEST_F(KvPublisherTest, AWatcherGetsASnapshotThenWhatChanges) {
  const auto first = Watch();
  EXPECT_EQ(first->kinds, "c");
  Run(10);
  EXPECT_EQ(first->kinds, "css");
  const auto second = Watch();
  EXPECT_EQ(second->kinds, "css");
  Run(20);
  EXPECT_EQ(first->kinds, "cssss");
  EXPECT_EQ(second->kinds, "cssss");
  EXPECT_EQ(first->last, second->last);  // one copy
}

TEST_F(KvPublisherTest, WhatANewcomersSnapshotHasIsNotToldAgain) {
  const auto first = Watch();
  Send(ResetPrefixCache{});  // recorded, not handed out yet
  const auto second = Watch();
  EXPECT_EQ(first->kinds, "cc");
  EXPECT_EQ(second->kinds, "c");
  publisher_.Publish();
  EXPECT_EQ(second->kinds, "c");
}

TEST_F(KvPublisherTest, WhoReadsTooSlowlyIsEndedAndNothingIsRecordedForIt) {
  const auto slow = Watch();
  const auto quick = Watch();
  slow->keeps_up = false;
  Run(10);
  ASSERT_EQ(slow->ends.size(), 1u);
  EXPECT_EQ(slow->ends[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(slow->ends[0]), "SLOW_WATCHER");
  EXPECT_EQ(quick->kinds, "css");
  quick->keeps_up = false;
  Run(20);
  EXPECT_EQ(publisher_.watcher_count(), 0u);
  Run(30);
  EXPECT_TRUE(engine_.TakeKvEvents().empty());
  EXPECT_EQ(quick->ends.size(), 1u);
}

TEST_F(KvPublisherTest, WhoIsGoneIsForgottenAndMakesRoom) {
  std::vector<std::shared_ptr<FakeWatcher>> watchers;
  for (size_t i = 0; i < kMaxKvWatchers; ++i) watchers.push_back(Watch());
  const auto late = std::make_shared<FakeWatcher>();
  const absl::Status refused = publisher_.Add(late);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("16 watchers"));
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_WATCHERS");
  EXPECT_EQ(late->kinds, "");
  watchers[3]->is_gone = true;
  EXPECT_TRUE(publisher_.Add(late).ok());
  EXPECT_TRUE(watchers[3]->ends.empty());
  for (const auto& watcher : watchers) watcher->is_gone = true;
  late->is_gone = true;
  publisher_.Publish();
  EXPECT_EQ(publisher_.watcher_count(), 0u);
}

TEST_F(KvPublisherTest, AtTheEndEveryWatcherIsTold) {
  const auto first = Watch();
  const auto second = Watch();
  publisher_.EndAll(absl::UnavailableError("over"));
  ASSERT_EQ(first->ends.size(), 1u);
  ASSERT_EQ(second->ends.size(), 1u);
  EXPECT_EQ(publisher_.watcher_count(), 0u);
}

}  // namespace
}  // namespace octavo
