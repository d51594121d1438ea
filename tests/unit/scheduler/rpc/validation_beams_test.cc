// The limits of requests for several sequences, samples or beams.

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/rpc/validation.h"
#include "tests/unit/scheduler/rpc/validation_fixture.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ValidationBeamsTest : public ValidationFixture {};

TEST_F(ValidationBeamsTest, SamplesAreOneToSixtyFourAndFitTheScheduler) {
  ExpectBad("n", "n is 0; it must be 1 to 64", [](auto& r) { r.set_n(0); });
  ExpectBad("n", "n is 65; it must be 1 to 64", [](auto& r) { r.set_n(65); });
  for (const uint32_t n : {1, 2, 64}) {
    const auto submission = Parse([n](auto& r) { r.set_n(n); });
    ASSERT_TRUE(submission.ok()) << submission.status();
    EXPECT_EQ(submission->request.sample_count, n);
    EXPECT_EQ(submission->session.sequence_count, n);
    EXPECT_EQ(submission->request.beams, std::nullopt);
  }
  max_sequences_ = 8;
  ExpectBad("n", "n is 9; it must be 1 to 8 (--max_sequences)", [](auto& r) { r.set_n(9); });
  ExpectBad("beam_width", "beam_width is 9; it must be 1 to 8 (--max_sequences)",
            [](auto& r) { r.set_beam_width(9); });
  EXPECT_TRUE(Parse([](auto& r) { r.set_n(8); }).ok());
}

TEST_F(ValidationBeamsTest, ABeamSearchHasItsDefaultsOrWhatWasGiven) {
  const auto plain = Parse([](auto& r) { r.set_beam_width(2); });
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->request.beams, (BeamSearchParams{.width = 2, .returned = 1}));
  EXPECT_EQ(plain->request.sample_count, 1u);
  EXPECT_EQ(plain->request.sampling.temperature, 0) << "nothing is drawn";
  const auto whole = Parse([](auto& r) {
    r.set_beam_width(32);
    r.set_n(32);
    r.set_length_penalty(-10);
    r.set_early_stopping(v1::EARLY_STOPPING_NEVER);
  });
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->request.beams, (BeamSearchParams{.width = 32,
                                                    .returned = 32,
                                                    .length_penalty = -10,
                                                    .early_stopping = EarlyStopping::kNever}));
  EXPECT_EQ(whole->session.sequence_count, 32u);
  EXPECT_EQ(Parse([](auto& r) {
              r.set_beam_width(2);
              r.set_early_stopping(v1::EARLY_STOPPING_ALWAYS);
            })->request.beams->early_stopping,
            EarlyStopping::kAlways);
}

TEST_F(ValidationBeamsTest, RefusesBeamSearchesOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  ExpectBad("beam_width", "beam_width is 0; it must be 1 to 32",
            [](auto& r) { r.set_beam_width(0); });
  ExpectBad("beam_width", "beam_width is 33; it must be 1 to 32",
            [](auto& r) { r.set_beam_width(33); });
  ExpectBad("n", "n is 5; it must be at most beam_width, 4", [](auto& r) {
    r.set_beam_width(4);
    r.set_n(5);
  });
  for (const float bad : {-10.1f, 10.1f, nan, infinity, -infinity}) {
    ExpectBad("length_penalty", "it must be -10 to 10", [bad](auto& r) {
      r.set_beam_width(2);
      r.set_length_penalty(bad);
    });
  }
  for (const int bad : {-1, 4}) {
    ExpectBad("early_stopping", "it must be one of the values of EarlyStopping, 0 to 3",
              [bad](auto& r) {
                r.set_beam_width(2);
                r.set_early_stopping(static_cast<v1::EarlyStopping>(bad));
              });
  }
}

TEST_F(ValidationBeamsTest, RefusesFieldsOfABeamSearchWithoutBeams) {
  for (const bool width_one : {false, true}) {
    ExpectBad("length_penalty", "without a beam search; leave it out, or set beam_width",
              [width_one](auto& r) {
                if (width_one) r.set_beam_width(1);
                r.set_length_penalty(1);
              });
    ExpectBad("early_stopping", "without a beam search", [width_one](auto& r) {
      if (width_one) r.set_beam_width(1);
      r.set_early_stopping(v1::EARLY_STOPPING_HEURISTIC);
    });
  }
}

TEST_F(ValidationBeamsTest, RefusesWhatHasNoMeaningBesideBeamsByItsName) {
  using Change = std::function<void(v1::SamplingParams&)>;
  const std::vector<std::pair<std::string, Change>> refused = {
      {"temperature", [](auto& s) { s.set_temperature(1); }},
      {"top_k", [](auto& s) { s.set_top_k(1); }},
      {"top_p", [](auto& s) { s.set_top_p(0.5f); }},
      {"min_p", [](auto& s) { s.set_min_p(0.5f); }},
      {"repetition_penalty", [](auto& s) { s.set_repetition_penalty(1.5f); }},
      {"presence_penalty", [](auto& s) { s.set_presence_penalty(1); }},
      {"frequency_penalty", [](auto& s) { s.set_frequency_penalty(-1); }},
      {"logit_bias", [](auto& s) { (*s.mutable_logit_bias())[1] = 0; }},
      {"min_tokens", [](auto& s) { s.set_min_tokens(1); }},
      {"seed", [](auto& s) { s.set_seed(0); }},
      {"logprobs", [](auto& s) { s.set_logprobs(0); }}};
  for (const auto& [field, change] : refused) {
    const auto with_width = [&change = change](uint32_t width) {
      return [&change, width](v1::GenerateRequest& r) {
        r.set_beam_width(width);
        change(*r.mutable_sampling());
      };
    };
    ExpectBad("sampling." + field, "has no meaning in a beam search; leave it out, or beam_width",
              with_width(2));
    EXPECT_TRUE(Parse(with_width(1)).ok()) << field;
  }
  ExpectBad("stop", "has no meaning in a beam search", [](auto& r) {
    r.set_beam_width(2);
    r.add_stop("x");
  });
}

TEST_F(ValidationBeamsTest, ABeamSearchTakesValuesThatAreOffAndWhatEndsIt) {
  const auto submission = Parse([](auto& r) {
    r.set_beam_width(2);
    r.set_max_tokens(9);
    r.set_echo(true);
    v1::SamplingParams& sampling = *r.mutable_sampling();
    sampling.set_temperature(0);
    sampling.set_top_k(0);
    sampling.set_top_p(1);
    sampling.set_min_p(0);
    sampling.set_repetition_penalty(1);
    sampling.set_presence_penalty(0);
    sampling.set_frequency_penalty(0);
    sampling.set_min_tokens(0);
    sampling.add_stop_token_ids(7);
    sampling.set_ignore_eos(true);
  });
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_THAT(submission->request.sampling.stop_token_ids, ElementsAre(7));
  EXPECT_FALSE(submission->request.prompt_logprobs);
}

TEST_F(ValidationBeamsTest, AnEchoForManySamplesIsBounded) {
  ServedModel model = SmallModel();
  model.config.context_length = 8192;
  v1::GenerateRequest request;
  request.set_text(std::string(4097, 'a'));
  request.set_echo(true);
  EXPECT_TRUE(ParseGenerate(request, model, {}, 0).ok());
  request.set_n(64);
  const absl::Status status = ParseGenerate(request, model, {}, 0).status();
  EXPECT_EQ(FieldOf(status), "echo");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("4097 tokens for each of n = 64 sequences are 262208; they must be at most "
                        "262144: echo with n = 1"));
  request.set_text(std::string(4096, 'a'));
  EXPECT_TRUE(ParseGenerate(request, model, {}, 0).ok());
}

}  // namespace
}  // namespace octavo
