// The loop with the real engine, a scripted worker and a manual clock, one turn at a time.

#include "scheduler/runtime/loop.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class LoopTest : public testing::Test {
 protected:
  LoopTest() { Make({}); }

  static LoopOptions Options() {
    LoopOptions options;
    options.engine.context_length = 64;
    options.engine.max_step_tokens = 32;
    options.engine.max_sequences = 4;
    options.engine.max_waiting_requests = 2;
    options.fleet.model_fingerprint = 42;
    options.fleet.layout = SmallLayout();
    options.replica_grace = absl::Seconds(30);
    options.slow_reader_timeout = absl::Seconds(20);
    return options;
  }
  void Make(const std::function<void(LoopOptions&)>& change) {
    LoopOptions options = Options();
    if (change) change(options);
    loop_ = std::make_unique<Loop>(options, tokenizer_.get(), &clock_, &dialer_, &observer_);
  }

  bool Turn() { return loop_->Turn(absl::InfinitePast()); }
  void Register(const std::string& instance = "a") {
    ASSERT_TRUE(loop_
                    ->Call([this, instance] {
                      EXPECT_TRUE(loop_->RegisterWorker(SmallWorker(instance)).ok());
                    })
                    .ok());
    Turn();
  }
  void StartReplica() {
    Register();
    loop_->OnModelLoaded(dialer_.last().id, SmallLoadedModel());
    Turn();
    loop_->OnReplicaStarted(dialer_.last().id, absl::OkStatus());
    Turn();
    ASSERT_TRUE(observer_.ready);
  }

  RequestId Submit(const std::string& name, const std::string& prompt, uint32_t max_tokens,
                   SessionOptions session = {}) {
    Submission submission;
    submission.request.request_id = loop_->NewRequestId();
    submission.request.client_request_id = name;
    for (const char byte : prompt)
      submission.request.prompt.push_back(static_cast<unsigned char>(byte));
    submission.request.max_tokens = max_tokens;
    submission.request.deadline = deadline_;
    submission.request.sample_count = session.sequence_count;
    session.prompt_token_count = static_cast<uint32_t>(prompt.size());
    submission.session = std::move(session);
    submission.sink = sinks_.emplace_back(std::make_shared<FakeSink>());
    const RequestId id = submission.request.request_id;
    EXPECT_TRUE(loop_->Submit(std::move(submission)).ok());
    Turn();
    return id;
  }

  // Answers the oldest plan: every sampling row gets the next byte of `text`.
  void Answer(const std::string& text = "x") {
    FakeDialer::Link& link = dialer_.last();
    ASSERT_FALSE(link.unanswered.empty());
    const StepPlan plan = std::move(link.unanswered.front());
    link.unanswered.pop_front();
    StepResult result;
    result.replica_id = plan.replica_id;
    result.epoch = plan.epoch;
    result.step = plan.step;
    for (const LayerGroupChange& change : plan.layer_groups)
      result.digests.push_back(change.digest);
    size_t next = 0;
    for (const PlanRow& row : plan.rows) {
      if (!row.samples) continue;
      result.sampled.push_back(
          {.sequence_id = row.sequence_id,
           .position = row.first_position + row.token_count,
           .token_id = static_cast<unsigned char>(text[next++ % text.size()])});
    }
    loop_->OnResult(link.id, std::move(result));
    Turn();
  }
  void AnswerAll(const std::string& text) {
    for (const char byte : text) {
      if (dialer_.last().unanswered.empty()) return;
      Answer(std::string(1, byte));
    }
  }
  FakeSink& sink(size_t index = 0) { return *sinks_[index]; }

  const std::unique_ptr<Tokenizer> tokenizer_ = ByteTokenizer();
  ManualClock clock_;
  FakeDialer dialer_;
  FakeObserver observer_;
  std::vector<std::shared_ptr<FakeSink>> sinks_;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::unique_ptr<Loop> loop_;
};

TEST_F(LoopTest, StreamsARequestFromSubmitToEnd) {
  StartReplica();
  Submit("r", "abc", 3);
  EXPECT_TRUE(sink().admitted);
  AnswerAll("xyz");
  EXPECT_EQ(sink().text(), "xyz");
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_TRUE(sink().ends[0].status.ok());
  EXPECT_EQ(sink().end().reason, FinishReason::kLength);
  EXPECT_EQ(sink().usage, (UsageCounts{.prompt_tokens = 3, .completion_tokens = 3}));
  EXPECT_THAT(observer_.outcomes, ElementsAre("length"));
  EXPECT_EQ(observer_.prompt_tokens, 3u);
  EXPECT_EQ(observer_.generation_tokens, 3u);
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
  EXPECT_TRUE(loop_->engine().CheckInvariants().ok());
}

TEST_F(LoopTest, KeepsTwoStepsInFlight) {
  StartReplica();
  Submit("r", "abc", 8);
  EXPECT_EQ(dialer_.last().unanswered.size(), 2u);
  Answer();
  EXPECT_EQ(dialer_.last().unanswered.size(), 2u);
}

TEST_F(LoopTest, AStopStringEndsTheRequestAndGivesItsBlocksBack) {
  StartReplica();
  Submit("r", "abc", 30, {.stop = {"END"}});
  AnswerAll("go ENDxxx");
  EXPECT_EQ(sink().text(), "go ");
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().end().reason, FinishReason::kStopString);
  EXPECT_EQ(sink().end().matched_string, "END");
  EXPECT_EQ(observer_.generation_tokens, 6u) << "tokens after the match are not the client's";
  AnswerAll("xx");
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
}

TEST_F(LoopTest, SeveralSamplesAreOneStreamAndOneRequest) {
  StartReplica();
  Submit("r", "abc", 2, {.sequence_count = 3});
  Answer("klm");
  Answer("xyz");
  EXPECT_THAT(sink().texts, ElementsAre(Pair(0, "kx"), Pair(1, "ly"), Pair(2, "mz")));
  EXPECT_EQ(sink().sequence_ends.size(), 3u);
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_TRUE(sink().ends[0].status.ok());
  EXPECT_EQ(sink().usage, (UsageCounts{.prompt_tokens = 3, .completion_tokens = 6}));
  EXPECT_THAT(observer_.outcomes, ElementsAre("length"));
  EXPECT_EQ(observer_.prompt_tokens, 3u);
  EXPECT_EQ(observer_.generation_tokens, 6u);
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
  EXPECT_TRUE(loop_->engine().CheckInvariants().ok());
}

TEST_F(LoopTest, AStopStringEndsItsSampleAndTheOthersGoOn) {
  StartReplica();
  Submit("r", "abc", 4, {.stop = {"!"}, .sequence_count = 2});
  Answer("a!");
  EXPECT_EQ(sink().sequence_ends[1].matched_string, "!");
  EXPECT_TRUE(sink().ends.empty());
  for (int i = 0; i < 8 && !dialer_.last().unanswered.empty(); ++i) Answer("b");
  EXPECT_THAT(sink().texts, ElementsAre(Pair(0, "abbb"), Pair(1, "")));
  EXPECT_EQ(sink().end().reason, FinishReason::kLength);
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().usage.completion_tokens, 4u + 1);
  EXPECT_EQ(observer_.generation_tokens, 4u + 1);
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
}

TEST_F(LoopTest, StopStringsOfAllSamplesEndTheRequest) {
  StartReplica();
  Submit("r", "abc", 30, {.stop = {"!"}, .sequence_count = 2});
  Answer("!!");
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_TRUE(sink().ends[0].status.ok());
  EXPECT_THAT(observer_.outcomes, ElementsAre("stop_string"));
  while (!dialer_.last().unanswered.empty()) Answer();
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
}

TEST_F(LoopTest, ASlowReaderPausesAllSamplesOfItsRequest) {
  StartReplica();
  const RequestId id = Submit("r", "abc", 30, {.sequence_count = 3});
  sink().keeps_up = false;
  for (int i = 0; i < 8 && !dialer_.last().unanswered.empty(); ++i) Answer();
  EXPECT_TRUE(dialer_.last().unanswered.empty()) << "nothing is planned for who does not read";
  EXPECT_EQ(observer_.slow_readers, 1u);
  const size_t at_pause = sink().usage.completion_tokens;
  sink().keeps_up = true;
  loop_->ReaderCaughtUp(id);
  Turn();
  Answer();
  EXPECT_EQ(sink().usage.completion_tokens, at_pause + 3);
}

TEST_F(LoopTest, RequestsWaitForAWorkerWithinTheGraceAndRunWhenItComes) {
  Submit("r", "abc", 1);
  EXPECT_TRUE(sink().ends.empty());
  clock_.Advance(absl::Seconds(29));
  Turn();
  EXPECT_TRUE(sink().ends.empty());
  StartReplica();
  AnswerAll("x");
  EXPECT_EQ(sink().text(), "x");
}

TEST_F(LoopTest, PastTheGraceRequestsAndNewOnesAreUnavailable) {
  Submit("r", "abc", 1);
  clock_.Advance(absl::Seconds(30));
  Turn();
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().ends[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(sink().ends[0].status), "NO_REPLICA");
  EXPECT_THAT(std::string(sink().ends[0].status.message()), HasSubstr("no worker has registered"));
  Submit("s", "abc", 1);
  ASSERT_EQ(sink(1).ends.size(), 1u);
  EXPECT_EQ(sink(1).ends[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(sink(1).ends[0].status), "NO_REPLICA");
  EXPECT_EQ(loop_->session_count(), 0u);
}

TEST_F(LoopTest, ALostWorkerCostsTimeAndNoToken) {
  StartReplica();
  Submit("r", "abc", 4);
  AnswerAll("xy");
  loop_->OnStreamEnded(dialer_.last().id, absl::UnavailableError("Socket closed"));
  Turn();
  EXPECT_FALSE(observer_.ready);
  clock_.Advance(absl::Seconds(1));
  StartReplica();
  ASSERT_EQ(dialer_.last().unanswered.size(), 1u);
  EXPECT_THAT(dialer_.last().unanswered.front().token_ids, ElementsAre('a', 'b', 'c', 'x', 'y'));
  AnswerAll("zw");
  EXPECT_EQ(sink().text(), "xyzw");
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_TRUE(sink().ends[0].status.ok());
}

TEST_F(LoopTest, WhatNoWorkerComesBackForEndsAfterTheGracePeriod) {
  StartReplica();
  Submit("r", "abc", 4);
  Answer("x");
  loop_->OnStreamEnded(dialer_.last().id, absl::UnavailableError("Socket closed"));
  Turn();
  clock_.Advance(absl::Seconds(29));
  Turn();
  EXPECT_TRUE(sink().ends.empty());
  clock_.Advance(absl::Seconds(1));
  Turn();
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().ends[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(sink().ends[0].status), "NO_REPLICA");
}

TEST_F(LoopTest, ARequestThatKillsItsWorkerWhereverItIsAloneEnds) {
  Submit("r", "abc", 8);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(sink().ends.empty());
    StartReplica();
    loop_->OnStreamEnded(dialer_.last().id, absl::UnavailableError("Socket closed"));
    Turn();
    clock_.Advance(absl::Seconds(1));
  }
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().ends[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(sink().ends[0].status), "KILLS_WORKER");
}

TEST_F(LoopTest, AHungWorkerIsLostAtTheStepsDeadline) {
  StartReplica();
  Submit("r", "abc", 8);
  clock_.Advance(absl::Seconds(4));
  Turn();
  EXPECT_TRUE(observer_.ready);
  clock_.Advance(absl::Seconds(2));
  Turn();
  EXPECT_FALSE(observer_.ready);
  EXPECT_TRUE(dialer_.last().closed);
}

TEST_F(LoopTest, ARefusedPlanIsResynchronisedWithoutTheClientNoticing) {
  StartReplica();
  Submit("r", "abc", 3);
  Answer("x");
  dialer_.last().unanswered.clear();
  loop_->OnStreamEnded(dialer_.last().id, absl::FailedPreconditionError("digest"));
  Turn();
  EXPECT_EQ(dialer_.last().streams, 2);
  ASSERT_FALSE(dialer_.last().unanswered.empty());
  EXPECT_TRUE(dialer_.last().unanswered.front().resets_state);
  AnswerAll("yz");
  EXPECT_EQ(sink().text(), "xyz");
  EXPECT_EQ(observer_.levels.resyncs, 1u);
}

TEST_F(LoopTest, ACancelledRequestEndsAndItsBlocksComeBack) {
  StartReplica();
  const RequestId id = Submit("r", "abc", 30);
  Answer();
  loop_->Cancel(id, CancelReason::kClientGone);
  Turn();
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().ends[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ReasonOf(sink().ends[0].status), "CLIENT_GONE");
  while (!dialer_.last().unanswered.empty()) Answer();
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
}

TEST_F(LoopTest, ADeadlineEndsARequestThatWaitsOrRuns) {
  StartReplica();
  deadline_ = clock_.Now() + absl::Seconds(1);
  Submit("r", "abc", 30);
  clock_.Advance(absl::Seconds(1));
  Turn();
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().ends[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(sink().ends[0].status), "DEADLINE_PASSED");
}

TEST_F(LoopTest, ASlowReaderIsPausedAndResumedWhenItCatchesUp) {
  StartReplica();
  const RequestId id = Submit("r", "abc", 30);
  sink().keeps_up = false;
  while (!dialer_.last().unanswered.empty()) Answer();
  const size_t at_pause = sink().text().size();
  EXPECT_LE(at_pause, 3u) << "what was in flight still comes";
  EXPECT_EQ(observer_.slow_readers, 1u);
  EXPECT_EQ(observer_.levels.paused, 1u);
  sink().keeps_up = true;
  loop_->ReaderCaughtUp(id);
  Turn();
  Answer();
  EXPECT_EQ(sink().text().size(), at_pause + 1);
}

TEST_F(LoopTest, AReaderThatStaysBehindEndsWithResourceExhausted) {
  StartReplica();
  Submit("r", "abc", 30);
  sink().keeps_up = false;
  while (!dialer_.last().unanswered.empty()) Answer();
  clock_.Advance(absl::Seconds(20));
  Turn();
  ASSERT_EQ(sink().ends.size(), 1u);
  EXPECT_EQ(sink().ends[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(sink().ends[0].status), "SLOW_READER");
  EXPECT_EQ(RetryDelay(sink().ends[0].status), absl::ZeroDuration())
      << "a retry does not make it faster";
  EXPECT_EQ(observer_.levels.held_blocks, 0u);
}

TEST_F(LoopTest, RefusesADuplicateNameAndAFullQueueAndHarmsNobody) {
  Submit("r", "abc", 1);
  Submit("r", "abc", 1);
  EXPECT_EQ(sink(1).ends.at(0).status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(sink(1).ends.at(0).status), "DUPLICATE_REQUEST_ID");
  Submit("s", "abc", 1);
  Submit("t", "abc", 1);
  EXPECT_EQ(sink(3).ends.at(0).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(sink(3).ends.at(0).status), "QUEUE_FULL");
  EXPECT_EQ(RetryDelay(sink(3).ends.at(0).status), absl::Seconds(1)) << "nothing has ended";
  EXPECT_TRUE(sink(0).ends.empty());
  EXPECT_THAT(observer_.outcomes, ElementsAre("refused", "refused"));
}

TEST_F(LoopTest, ADrainLetsRunningRequestsFinishAndThenSaysSo) {
  StartReplica();
  Submit("r", "abc", 2);
  bool idle = false;
  loop_->BeginDrain([&idle] { idle = true; });
  Turn();
  EXPECT_FALSE(observer_.ready);
  EXPECT_FALSE(idle);
  Submit("s", "abc", 1);
  EXPECT_EQ(sink(1).ends.at(0).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(sink(1).ends.at(0).status), "DRAINING");
  AnswerAll("xy");
  EXPECT_EQ(sink(0).text(), "xy");
  EXPECT_TRUE(idle);
}

TEST_F(LoopTest, EndAllEndsEverythingWithTheStatusGiven) {
  StartReplica();
  Submit("r", "abc", 20);
  Submit("s", "abc", 20);
  ASSERT_TRUE(loop_->Call([this] { loop_->EndAll(absl::UnavailableError("shutting down")); }).ok());
  Turn();
  for (const auto& each : sinks_)
    EXPECT_EQ(each->ends.at(0).status, absl::UnavailableError("shutting down"));
}

TEST_F(LoopTest, AbortsByNameAndCountsOnlyThoseThatLive) {
  StartReplica();
  Submit("r", "abc", 20);
  uint32_t count = 0;
  ASSERT_TRUE(loop_->Call([&] { count = loop_->AbortByName({"r", "nobody"}); }).ok());
  Turn();
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(sink().ends.at(0).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ReasonOf(sink().ends.at(0).status), "ABORTED");
}

TEST_F(LoopTest, ForgetsPrefixesOnlyWhileNoBlockIsHeld) {
  StartReplica();
  Submit("r", "abcdefgh", 2);
  absl::StatusOr<uint32_t> cleared = 0;
  const auto reset = [&] {
    ASSERT_TRUE(loop_->Call([&] { cleared = loop_->ResetPrefixes(); }).ok());
    Turn();
  };
  reset();
  EXPECT_EQ(cleared.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(cleared.status()), "BLOCKS_HELD");
  AnswerAll("xy");
  while (!dialer_.last().unanswered.empty()) Answer();
  reset();
  ASSERT_TRUE(cleared.ok()) << cleared.status();
  EXPECT_EQ(*cleared, 3u);  // two full ones, and one with the first token of the answer
  EXPECT_EQ(observer_.levels.cached_blocks, 0u);
}

TEST_F(LoopTest, AStoppedLoopSaysThatItShutsDown) {
  loop_->Stop();
  for (const absl::Status& status : {loop_->Call([] {}), loop_->Submit({})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(status), "SHUTTING_DOWN");
  }
}

TEST_F(LoopTest, AFullInboxRefusesWithADelayAndTakesCallsAgainAfterATurn) {
  absl::Status refused;
  for (size_t i = 0; refused.ok() && i <= loop_->options().inbox_capacity; ++i) {
    refused = loop_->Call([] {});
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
  EXPECT_GT(RetryDelay(refused), absl::ZeroDuration());
  Turn();
  EXPECT_TRUE(loop_->Call([] {}).ok());
}

TEST_F(LoopTest, RunsOnAThreadOfItsOwnAndStops) {
  std::thread thread([this] { loop_->Run(); });
  ASSERT_TRUE(
      loop_->Call([this] { EXPECT_TRUE(loop_->RegisterWorker(SmallWorker("a")).ok()); }).ok());
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this] {
      for (int j = 0; j < 50; ++j) loop_->Cancel(loop_->NewRequestId(), CancelReason::kClientGone);
    });
  }
  for (std::thread& client : clients) client.join();
  loop_->Stop();
  thread.join();
  EXPECT_EQ(dialer_.links.size(), 1u);
  EXPECT_EQ(loop_->Call([] {}).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace octavo
