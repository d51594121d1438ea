// The loop with the real engine, a scripted worker and a manual clock, one turn at a time.

#include "scheduler/runtime/loop.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/loop_fixture.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class LoopTest : public LoopFixture {};

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
