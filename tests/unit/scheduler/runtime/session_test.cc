#include "scheduler/runtime/session.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SessionTest : public testing::Test {
 protected:
  void Start(SessionOptions options) {
    options.prompt_token_count = 3;
    auto session = Session::Create(RequestId(1), std::move(options), tokenizer_.get(), sink_,
                                   absl::UnixEpoch());
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    session_->Admit(2);
  }

  // One step that samples one byte.
  void Step(TokenId token, float logprob = 0, std::vector<TokenLogprob> top = {}) {
    GeneratedToken generated;
    generated.outcome = {.position = next_position_++, .token_id = token, .logprob = logprob};
    session_->Take(generated, top);
    session_->Flush();
  }
  void Steps(const std::string& bytes) {
    for (const char byte : bytes) Step(static_cast<unsigned char>(byte));
  }
  void Score(uint32_t position, TokenId token, float logprob) {
    GeneratedToken generated;
    generated.scores_prompt = true;
    generated.outcome = {.position = position, .token_id = token, .logprob = logprob};
    session_->Take(generated, {});
  }
  void Finish(FinishReason reason, absl::Status status = absl::OkStatus()) {
    RequestFinished finished;
    finished.reason = reason;
    finished.status = std::move(status);
    finished.submitted = absl::UnixEpoch();
    finished.admitted = absl::UnixEpoch() + absl::Milliseconds(5);
    finished.first_token = absl::UnixEpoch() + absl::Milliseconds(25);
    finished.finished = absl::UnixEpoch() + absl::Milliseconds(125);
    session_->Finish(finished);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = ByteTokenizer();
  const std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
  std::unique_ptr<Session> session_;
  uint32_t next_position_ = 3;
};

TEST_F(SessionTest, StreamsOneChunkAStepWithCumulativeCounts) {
  Start({});
  EXPECT_TRUE(sink_->admitted);
  Steps("hi");
  ASSERT_EQ(sink_->chunks.size(), 2u);
  EXPECT_EQ(sink_->chunks[0].text, "h");
  EXPECT_THAT(sink_->chunks[1].token_ids, ElementsAre('i'));
  EXPECT_EQ(sink_->chunks[1].usage,
            (UsageCounts{.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 2}));
}

TEST_F(SessionTest, NeverSplitsACharacterAndEndsHalfOfOneWithTheReplacementCharacter) {
  Start({});
  Steps("\xE2\x82");
  EXPECT_EQ(sink_->text, "");
  EXPECT_EQ(sink_->chunks.size(), 2u) << "token ids run ahead of the text";
  Steps("\xAC\xE2\x82");
  EXPECT_EQ(sink_->text, "\xE2\x82\xAC");
  Finish(FinishReason::kLength);
  EXPECT_EQ(sink_->text, "\xE2\x82\xAC\xEF\xBF\xBD");
}

TEST_F(SessionTest, EndsAtAStopStringAcrossTokensAndShowsNoByteOfIt) {
  Start({.stop = {"END", "never"}});
  Steps("some E");
  EXPECT_EQ(sink_->text, "some ");
  EXPECT_FALSE(session_->kept_token_count());
  Steps("ND");
  EXPECT_EQ(session_->kept_token_count(), 8u);
  Steps("more");
  Finish(FinishReason::kStopString);
  EXPECT_EQ(sink_->text, "some ");
  ASSERT_EQ(sink_->ends.size(), 1u);
  EXPECT_EQ(sink_->ends[0].reason, FinishReason::kStopString);
  EXPECT_EQ(sink_->ends[0].matched_string, "END");
  EXPECT_EQ(sink_->ends[0].last.usage.completion_tokens, 8u)
      << "tokens after the match do not count";
}

TEST_F(SessionTest, AStopStringWinsOverTheReasonOfTheSameStep) {
  Start({.stop = {"!"}});
  Steps("a!");
  Finish(FinishReason::kLength);
  EXPECT_EQ(sink_->ends[0].reason, FinishReason::kStopString);
  EXPECT_EQ(sink_->text, "a");
}

TEST_F(SessionTest, TextHeldBackForAStopStringComesOutWhenItIsNone) {
  Start({.stop = {"END"}});
  Steps("xEN");
  EXPECT_EQ(sink_->text, "x");
  Finish(FinishReason::kLength);
  EXPECT_EQ(sink_->text, "xEN");
  EXPECT_EQ(sink_->ends[0].reason, FinishReason::kLength);
}

TEST_F(SessionTest, StopStringsCountOnlyAfterMinTokens) {
  Start({.stop = {"a"}, .sampling = {.min_tokens = 3}});
  Steps("aaa");
  EXPECT_FALSE(session_->kept_token_count());
  EXPECT_EQ(sink_->text, "aaa");
  Steps("a");
  EXPECT_EQ(session_->kept_token_count(), 4u);
}

TEST_F(SessionTest, AStopTokenIsAmongTheIdsButNotInTheText) {
  Start({.sampling = {.stop_token_ids = {'.'}}});
  Steps("ok.");
  Finish(FinishReason::kStopToken);
  EXPECT_EQ(sink_->text, "ok");
  EXPECT_EQ(sink_->ends[0].last.usage.completion_tokens, 3u);
}

TEST_F(SessionTest, ReturnsLogProbabilitiesBesideTheIds) {
  Start({.sampling = {.logprobs = 1}});
  Step('x', -0.5f, {{.token_id = 'y', .logprob = -0.25f}});
  ASSERT_EQ(sink_->chunks.size(), 1u);
  EXPECT_THAT(
      sink_->chunks[0].logprobs,
      ElementsAre(TokenAlternatives{.chosen = TokenLogprob{'x', -0.5f}, .top = {{'y', -0.25f}}}));
}

TEST_F(SessionTest, EchoesThePromptOnAdmission) {
  Start({.echo = true, .prompt_text = "abc", .prompt = {'a', 'b', 'c'}});
  ASSERT_EQ(sink_->chunks.size(), 1u);
  EXPECT_TRUE(sink_->chunks[0].is_prompt);
  EXPECT_EQ(sink_->chunks[0].text, "abc");
  EXPECT_THAT(sink_->chunks[0].token_ids, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(sink_->chunks[0].logprobs, IsEmpty());
}

TEST_F(SessionTest, EchoesWithLogProbabilitiesOnceAllAreKnownAndTakesEachPositionOnce) {
  Start(
      {.sampling = {.logprobs = 0}, .echo = true, .prompt_text = "abc", .prompt = {'a', 'b', 'c'}});
  EXPECT_THAT(sink_->chunks, IsEmpty());
  Score(1, 'b', -1);
  Score(1, 'b', -9);  // computed again after a preemption
  Score(2, 'c', -2);
  Step('d', -3);
  ASSERT_EQ(sink_->chunks.size(), 2u);
  EXPECT_THAT(sink_->chunks[0].logprobs,
              ElementsAre(TokenAlternatives{}, TokenAlternatives{.chosen = TokenLogprob{'b', -1}},
                          TokenAlternatives{.chosen = TokenLogprob{'c', -2}}));
  EXPECT_THAT(sink_->chunks[1].token_ids, ElementsAre('d'));
}

TEST_F(SessionTest, SaysHowLongEachStageTook) {
  Start({});
  Finish(FinishReason::kLength);
  EXPECT_EQ(sink_->ends[0].queue_time, absl::Milliseconds(5));
  EXPECT_EQ(sink_->ends[0].prefill_time, absl::Milliseconds(20));
  EXPECT_EQ(sink_->ends[0].decode_time, absl::Milliseconds(100));
}

TEST_F(SessionTest, AnOverridingStatusReplacesTheEnginesButNotSuccess) {
  Start({});
  session_->override_status = absl::UnavailableError("shutting down");
  Finish(FinishReason::kAborted, absl::CancelledError("aborted"));
  EXPECT_EQ(sink_->ends[0].status, absl::UnavailableError("shutting down"));
}

}  // namespace
}  // namespace octavo
