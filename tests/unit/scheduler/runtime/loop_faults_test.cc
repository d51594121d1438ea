// The loop when workers come late, are lost or hang, and when readers are slow.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/runtime/loop.h"
#include "tests/unit/scheduler/runtime/loop_fixture.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoopFaultsTest : public LoopFixture {};

TEST_F(LoopFaultsTest, ASlowReaderPausesAllSamplesOfItsRequest) {
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

TEST_F(LoopFaultsTest, RequestsWaitForAWorkerWithinTheGraceAndRunWhenItComes) {
  Submit("r", "abc", 1);
  EXPECT_TRUE(sink().ends.empty());
  clock_.Advance(absl::Seconds(29));
  Turn();
  EXPECT_TRUE(sink().ends.empty());
  StartReplica();
  AnswerAll("x");
  EXPECT_EQ(sink().text(), "x");
}

TEST_F(LoopFaultsTest, PastTheGraceRequestsAndNewOnesAreUnavailable) {
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

TEST_F(LoopFaultsTest, ALostWorkerCostsTimeAndNoToken) {
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

TEST_F(LoopFaultsTest, WhatNoWorkerComesBackForEndsAfterTheGracePeriod) {
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

TEST_F(LoopFaultsTest, ARequestThatKillsItsWorkerWhereverItIsAloneEnds) {
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

TEST_F(LoopFaultsTest, AHungWorkerIsLostAtTheStepsDeadline) {
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

TEST_F(LoopFaultsTest, ARefusedPlanIsResynchronisedWithoutTheClientNoticing) {
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

TEST_F(LoopFaultsTest, ASlowReaderIsPausedAndResumedWhenItCatchesUp) {
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

TEST_F(LoopFaultsTest, AReaderThatStaysBehindEndsWithResourceExhausted) {
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

}  // namespace
}  // namespace octavo
