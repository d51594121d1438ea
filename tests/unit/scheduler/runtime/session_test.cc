#include "scheduler/runtime/session.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

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
  // One step that samples a byte for one of several sequences; Flush is left to the test.
  void Sample(uint32_t index, TokenId token) {
    GeneratedToken generated;
    generated.sequence_index = index;
    generated.outcome = {.position = 3, .token_id = token};
    session_->Take(generated, {});
  }
  void Complete(uint32_t index, FinishReason reason, std::optional<TokenId> stop_token = {}) {
    session_->Complete({.sequence_index = index, .reason = reason, .stop_token = stop_token});
  }
  // The only sequence is complete, and so the request.
  void FinishOne(FinishReason reason, std::optional<TokenId> stop_token = {}) {
    Complete(0, reason, stop_token);
    Finish(reason);
  }
  void Finish(FinishReason reason, absl::Status status = absl::OkStatus()) {
    RequestFinished finished;
    finished.reason = reason;
    finished.status = std::move(status);
    finished.submitted = absl::UnixEpoch();
    finished.admitted = absl::UnixEpoch() + absl::Milliseconds(5);
    finished.first_token = absl::UnixEpoch() + absl::Milliseconds(25);
    finished.finished = absl::UnixEpoch() + absl::Milliseconds(125);
    outcome_ = session_->Finish(finished);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = ByteTokenizer();
  const std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
  std::unique_ptr<Session> session_;
  uint32_t next_position_ = 3;
  FinishReason outcome_ = FinishReason::kError;
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
  EXPECT_EQ(sink_->text(), "");
  EXPECT_EQ(sink_->chunks.size(), 2u) << "token ids run ahead of the text";
  Steps("\xAC\xE2\x82");
  EXPECT_EQ(sink_->text(), "\xE2\x82\xAC");
  FinishOne(FinishReason::kLength);
  EXPECT_EQ(sink_->text(), "\xE2\x82\xAC\xEF\xBF\xBD");
}

TEST_F(SessionTest, EndsAtAStopStringAcrossTokensAndShowsNoByteOfIt) {
  Start({.stop = {"END", "never"}});
  Steps("some E");
  EXPECT_EQ(sink_->text(), "some ");
  EXPECT_THAT(session_->TakeStopped(), IsEmpty());
  Steps("ND");
  EXPECT_THAT(session_->TakeStopped(), ElementsAre(StoppedSequence{0, 8}));
  EXPECT_THAT(session_->TakeStopped(), IsEmpty()) << "told once";
  Steps("more");
  FinishOne(FinishReason::kStopString);
  EXPECT_EQ(sink_->text(), "some ");
  ASSERT_EQ(sink_->ends.size(), 1u);
  EXPECT_EQ(sink_->end().reason, FinishReason::kStopString);
  EXPECT_EQ(sink_->end().matched_string, "END");
  EXPECT_EQ(sink_->usage.completion_tokens, 8u) << "tokens after the match do not count";
}

TEST_F(SessionTest, AStopStringWinsOverTheReasonOfTheSameStep) {
  Start({.stop = {"!"}});
  Steps("a!");
  FinishOne(FinishReason::kLength);
  EXPECT_EQ(sink_->end().reason, FinishReason::kStopString);
  EXPECT_EQ(sink_->text(), "a");
}

TEST_F(SessionTest, TextHeldBackForAStopStringComesOutWhenItIsNone) {
  Start({.stop = {"END"}});
  Steps("xEN");
  EXPECT_EQ(sink_->text(), "x");
  FinishOne(FinishReason::kLength);
  EXPECT_EQ(sink_->text(), "xEN");
  EXPECT_EQ(sink_->end().reason, FinishReason::kLength);
}

TEST_F(SessionTest, StopStringsCountOnlyAfterMinTokens) {
  Start({.stop = {"a"}, .sampling = {.min_tokens = 3}});
  Steps("aaa");
  EXPECT_THAT(session_->TakeStopped(), IsEmpty());
  EXPECT_EQ(sink_->text(), "aaa");
  Steps("a");
  EXPECT_THAT(session_->TakeStopped(), ElementsAre(StoppedSequence{0, 4}));
}

TEST_F(SessionTest, AStopTokenIsAmongTheIdsButNotInTheText) {
  Start({.sampling = {.stop_token_ids = {'.'}}});
  Steps("ok.");
  FinishOne(FinishReason::kStopToken, '.');
  EXPECT_EQ(sink_->text(), "ok");
  EXPECT_EQ(sink_->end().matched_token, '.');
  EXPECT_EQ(sink_->usage.completion_tokens, 3u);
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
  FinishOne(FinishReason::kLength);
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

TEST_F(SessionTest, EachSampleHasItsOwnTextStopStringAndEnd) {
  Start({.stop = {"!"}, .sequence_count = 3});
  for (const char* step : {"abc", "d\xC3!", "e\xA9x", "fgx"}) {
    for (uint32_t i = 0; i < 3; ++i) Sample(i, static_cast<unsigned char>(step[i]));
    session_->Flush();
  }
  EXPECT_THAT(session_->TakeStopped(), ElementsAre(StoppedSequence{2, 2}));
  EXPECT_THAT(sink_->texts, ElementsAre(Pair(0, "adef"), Pair(1, "b\xC3\xA9g"), Pair(2, "c")));
  EXPECT_THAT(sink_->sequence_ends,
              ElementsAre(Pair(
                  2, SequenceEnd{.reason = FinishReason::kStopString, .matched_string = "!"})));
  EXPECT_FALSE(session_->complete());
  Complete(2, FinishReason::kStopString);  // the engine's answer changes nothing
  Complete(1, FinishReason::kStopToken, 'g');
  Complete(0, FinishReason::kLength);
  EXPECT_TRUE(session_->complete());
  Finish(FinishReason::kLength);
  EXPECT_EQ(outcome_, FinishReason::kLength);
  EXPECT_EQ(sink_->sequence_ends[0], (SequenceEnd{.reason = FinishReason::kLength}));
  EXPECT_EQ(sink_->sequence_ends[1],
            (SequenceEnd{.reason = FinishReason::kStopToken, .matched_token = 'g'}));
  EXPECT_EQ(sink_->usage,
            (UsageCounts{.prompt_tokens = 3, .completion_tokens = 4 + 4 + 2, .cached_tokens = 2}));
}

TEST_F(SessionTest, ChunksCountTheTokensOfAllSamplesUpToTheirOwn) {
  Start({.sequence_count = 2});
  for (const char* step : {"ab", "cd"}) {
    for (uint32_t i = 0; i < 2; ++i) Sample(i, static_cast<unsigned char>(step[i]));
    session_->Flush();
  }
  ASSERT_EQ(sink_->chunks.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sink_->chunks[i].index, i % 2);
    EXPECT_EQ(sink_->chunks[i].usage.completion_tokens, i + 1);
  }
}

TEST_F(SessionTest, ASampleThatIsCompleteAtAStopStringIsNotStoppedAgain) {
  Start({.stop = {"!"}, .sequence_count = 2});
  Sample(0, '!');
  Sample(1, 'a');
  Complete(0, FinishReason::kLength);
  session_->Flush();
  EXPECT_THAT(session_->TakeStopped(), IsEmpty());
  EXPECT_EQ(sink_->end().reason, FinishReason::kStopString);
}

TEST_F(SessionTest, WhenAllSamplesMetStopStringsTheRequestEndsWellWhateverTheEngineSays) {
  Start({.stop = {"!"}, .sequence_count = 2});
  Sample(0, '!');
  Sample(1, '!');
  EXPECT_TRUE(session_->complete());
  Finish(FinishReason::kCancelled, absl::CancelledError("gone"));
  EXPECT_TRUE(sink_->ends.at(0).status.ok());
  EXPECT_EQ(outcome_, FinishReason::kStopString);
}

TEST_F(SessionTest, ARequestThatFailsHasNoEndForItsOpenSamples) {
  Start({.stop = {"!"}, .sequence_count = 2});
  Sample(0, '!');
  Sample(1, 'a');
  Finish(FinishReason::kError, absl::InternalError("broken"));
  EXPECT_EQ(sink_->ends.at(0).status, absl::InternalError("broken"));
  EXPECT_THAT(sink_->texts, ElementsAre(Pair(0, ""), Pair(1, "a"))) << "what was known is sent";
  EXPECT_THAT(sink_->sequence_ends, ElementsAre(Pair(0, _)));
  EXPECT_EQ(outcome_, FinishReason::kError);
}

TEST_F(SessionTest, TheEchoComesForEachSampleWithTheScoresOfTheOnePrompt) {
  Start({.sampling = {.logprobs = 0},
         .sequence_count = 2,
         .echo = true,
         .prompt_text = "ab",
         .prompt = {'a', 'b'}});
  Score(1, 'b', -1);
  Sample(0, 'x');
  Sample(1, 'y');
  session_->Flush();
  ASSERT_EQ(sink_->chunks.size(), 4u);
  for (uint32_t i = 0; i < 2; ++i) {
    const StreamChunk& echo = sink_->chunks[i];
    EXPECT_TRUE(echo.is_prompt);
    EXPECT_EQ(echo.index, i);
    EXPECT_EQ(echo.text, "ab");
    EXPECT_THAT(echo.token_ids, ElementsAre('a', 'b'));
    EXPECT_THAT(echo.logprobs, ElementsAre(TokenAlternatives{},
                                           TokenAlternatives{.chosen = TokenLogprob{'b', -1}}));
    EXPECT_EQ(echo.usage.completion_tokens, 0u);
  }
}

TEST_F(SessionTest, ABeamSearchShowsItsProgressAndThenItsHypothesesBestFirst) {
  Start({.sampling = {.stop_token_ids = {'.'}}, .sequence_count = 2});
  for (const uint32_t length : {1, 2}) {
    session_->Advance({.token_count = length});
    session_->Flush();
  }
  session_->Flush();
  ASSERT_EQ(sink_->chunks.size(), 2u);
  EXPECT_EQ(sink_->chunks[1], (StreamChunk{.usage = {3, 2, 2}}));
  session_->Complete({.sequence_index = 0,
                      .reason = FinishReason::kStopToken,
                      .stop_token = '.',
                      .tokens = {'o', 'k', '.'},
                      .score = -0.5f});
  session_->Complete({.sequence_index = 1,
                      .reason = FinishReason::kLength,
                      .tokens = {'o', 'h', '!'},
                      .score = -0.75f});
  Finish(FinishReason::kLength);
  EXPECT_THAT(sink_->texts, ElementsAre(Pair(0, "ok"), Pair(1, "oh!")));
  EXPECT_EQ(
      sink_->sequence_ends[0],
      (SequenceEnd{.reason = FinishReason::kStopToken, .matched_token = '.', .score = -0.5f}));
  EXPECT_EQ(sink_->sequence_ends[1],
            (SequenceEnd{.reason = FinishReason::kLength, .score = -0.75f}));
  EXPECT_THAT(sink_->chunks[2].token_ids, ElementsAre('o', 'k', '.'));
  EXPECT_EQ(sink_->chunks[2].usage.completion_tokens, 3u);
  EXPECT_EQ(sink_->usage.completion_tokens, 6u);
}

}  // namespace
}  // namespace octavo
