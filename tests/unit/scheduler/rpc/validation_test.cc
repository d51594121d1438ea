// Every limit a client can meet: its code, its field and its message.

#include "scheduler/rpc/validation.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/errors.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kContextLength = 32;
constexpr uint64_t kDrawnSeed = 99;

ServedModel SmallModel() {
  ServedModel model;
  model.name = "small";
  model.config.context_length = kContextLength;
  model.config.vocab_size = 257;
  TokenizerSpec spec = SmallSpec({}, {{"<end>", TokenType::kControl}});
  spec.eos_id = kEndToken;
  model.tokenizer = *Tokenizer::Create(std::move(spec));
  model.chat_template = *ChatTemplate::Parse(
      "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", "", "<end>");
  return model;
}

// The field a BadRequest names first; empty without one.
std::string FieldOf(const absl::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(wire::ToGrpc(status).error_details());
  for (const auto& detail : details.details()) {
    google::rpc::BadRequest bad;
    if (detail.UnpackTo(&bad) && bad.field_violations_size() > 0)
      return bad.field_violations(0).field();
  }
  return "";
}

class ValidationTest : public testing::Test {
 protected:
  absl::StatusOr<Submission> Parse(const std::function<void(v1::GenerateRequest&)>& change) {
    v1::GenerateRequest request;
    request.set_text("hello");
    change(request);
    return ParseGenerate(request, model_,
                         {.min_priority = 0, .max_priority = 10, .max_sequences = max_sequences_},
                         kDrawnSeed);
  }
  void ExpectBad(const std::string& field, const std::string& message,
                 const std::function<void(v1::GenerateRequest&)>& change) {
    const absl::Status status = Parse(change).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << ": " << status;
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  const ServedModel model_ = SmallModel();
  uint32_t max_sequences_ = 256;
};

TEST_F(ValidationTest, APlainRequestTakesTheDefaults) {
  const auto submission = Parse([](auto&) {});
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_THAT(submission->request.prompt, ElementsAre('h', 'e', 'l', 'l', 'o'));
  EXPECT_EQ(submission->request.seed, kDrawnSeed);
  EXPECT_FALSE(submission->request.max_tokens.has_value());
  EXPECT_EQ(submission->request.sampling, (SamplingParams{.stop_token_ids = {kEndToken}}));
  EXPECT_EQ(submission->session.prompt_token_count, 5u);
}

TEST_F(ValidationTest, StopTokensAreTheClientsAndTheModelsUnlessItIgnoresThem) {
  const auto both = Parse([](auto& r) { r.mutable_sampling()->add_stop_token_ids(7); });
  EXPECT_THAT(both->request.sampling.stop_token_ids, ElementsAre(7, kEndToken));
  const auto own = Parse([](auto& r) {
    r.mutable_sampling()->add_stop_token_ids(7);
    r.mutable_sampling()->set_ignore_eos(true);
  });
  EXPECT_THAT(own->request.sampling.stop_token_ids, ElementsAre(7));
}

TEST_F(ValidationTest, ARequestMayAskNotToBeCached) {
  EXPECT_FALSE(Parse([](auto&) {})->request.no_cache);
  EXPECT_TRUE(Parse([](auto& r) { r.set_no_cache(true); })->request.no_cache);
}

TEST_F(ValidationTest, AGivenSeedIsUsedAlsoWhenItIsZero) {
  EXPECT_EQ(Parse([](auto& r) { r.mutable_sampling()->set_seed(0); })->request.seed, 0u);
}

TEST_F(ValidationTest, EchoKeepsThePromptAndAsksForItsLogProbabilities) {
  const auto submission = Parse([](auto& r) {
    r.mutable_token_ids()->add_ids('h');
    r.mutable_token_ids()->add_ids(kEndToken);
    r.set_echo(true);
    r.mutable_sampling()->set_logprobs(0);
  });
  ASSERT_TRUE(submission.ok());
  EXPECT_TRUE(submission->request.prompt_logprobs);
  EXPECT_EQ(submission->session.prompt_text, "h<end>");
  EXPECT_THAT(submission->session.prompt, ElementsAre('h', kEndToken));
}

TEST_F(ValidationTest, AChatIsRenderedAndTokenised) {
  const auto submission = Parse([](auto& r) {
    auto& message = *r.mutable_chat()->add_messages();
    message.set_role("u");
    message.set_content("hi");
  });
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(model_.tokenizer->DecodeBytes(submission->request.prompt), "u:hi;");
}

TEST_F(ValidationTest, AnotherModelIsNotFound) {
  const absl::Status status = Parse([](auto& r) { r.set_model("big"); }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("\"big\" is not served here; this is \"small\""));
  EXPECT_TRUE(Parse([](auto& r) { r.set_model("small"); }).ok());
}

TEST_F(ValidationTest, RefusesPromptsThatAreMissingEmptyTooLongOrOutOfVocabulary) {
  ExpectBad("prompt", "prompt is missing", [](auto& r) { r.clear_text(); });
  ExpectBad("text", "text is empty", [](auto& r) { r.set_text(""); });
  ExpectBad("text", "the prompt has 32 tokens; the model's length is 32",
            [](auto& r) { r.set_text(std::string(32, 'a')); });
  ExpectBad("text", "it must be at most 4194304 bytes",
            [](auto& r) { r.set_text(std::string(kMaxPromptBytes + 1, 'a')); });
  ExpectBad("token_ids.ids", "the prompt has no tokens", [](auto& r) { r.mutable_token_ids(); });
  ExpectBad("token_ids.ids[1]",
            "token_ids.ids[1] is 257; it must be a token id below the vocabulary size, 257",
            [](auto& r) {
              r.mutable_token_ids()->add_ids(256);
              r.mutable_token_ids()->add_ids(257);
            });
  ExpectBad("text", "not UTF-8", [](auto& r) { r.set_text("\xFF"); });
}

TEST_F(ValidationTest, RefusesLengthsThatDoNotFit) {
  ExpectBad("max_tokens", "max_tokens is 0; it must be at least 1",
            [](auto& r) { r.set_max_tokens(0); });
  ExpectBad("max_tokens", "max_tokens is 28; it must be at most 27",
            [](auto& r) { r.set_max_tokens(28); });
  EXPECT_TRUE(Parse([](auto& r) { r.set_max_tokens(27); }).ok());
  ExpectBad("sampling.min_tokens", "sampling.min_tokens is 4; it must be at most max_tokens, 3",
            [](auto& r) {
              r.set_max_tokens(3);
              r.mutable_sampling()->set_min_tokens(4);
            });
  ExpectBad("sampling.min_tokens", "at most max_tokens, 27",
            [](auto& r) { r.mutable_sampling()->set_min_tokens(28); });
}

TEST_F(ValidationTest, RefusesSamplingOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-0.1f, 100.1f, nan, infinity}) {
    ExpectBad("sampling.temperature", "it must be 0 to 100",
              [&](auto& r) { r.mutable_sampling()->set_temperature(bad); });
  }
  for (const float bad : {0.0f, 1.1f, -1.0f, nan}) {
    ExpectBad("sampling.top_p", "it must be above 0 and at most 1",
              [&](auto& r) { r.mutable_sampling()->set_top_p(bad); });
  }
  for (const float bad : {-0.1f, 1.1f, nan}) {
    ExpectBad("sampling.min_p", "it must be 0 to 1",
              [&](auto& r) { r.mutable_sampling()->set_min_p(bad); });
  }
  for (const float bad : {0.0f, 10.1f, nan}) {
    ExpectBad("sampling.repetition_penalty", "it must be above 0 and at most 10",
              [&](auto& r) { r.mutable_sampling()->set_repetition_penalty(bad); });
  }
  for (const float bad : {-2.1f, 2.1f, nan}) {
    ExpectBad("sampling.presence_penalty", "it must be -2 to 2",
              [&](auto& r) { r.mutable_sampling()->set_presence_penalty(bad); });
    ExpectBad("sampling.frequency_penalty", "it must be -2 to 2",
              [&](auto& r) { r.mutable_sampling()->set_frequency_penalty(bad); });
  }
  EXPECT_TRUE(Parse([](auto& r) {
                r.mutable_sampling()->set_temperature(0);
                r.mutable_sampling()->set_top_p(1);
                r.mutable_sampling()->set_min_p(1);
                r.mutable_sampling()->set_repetition_penalty(10);
                r.mutable_sampling()->set_presence_penalty(-2);
                r.mutable_sampling()->set_frequency_penalty(2);
              }).ok());
}

TEST_F(ValidationTest, RefusesTokenListsThatAreTooLongOrOutOfVocabulary) {
  ExpectBad("sampling.logprobs", "sampling.logprobs is 21; it must be 0 to 20",
            [](auto& r) { r.mutable_sampling()->set_logprobs(21); });
  ExpectBad("sampling.stop_token_ids", "has size 65; it must be at most 64", [](auto& r) {
    for (int i = 0; i < 65; ++i) r.mutable_sampling()->add_stop_token_ids(1);
  });
  ExpectBad("sampling.stop_token_ids[0]", "below the vocabulary size, 257",
            [](auto& r) { r.mutable_sampling()->add_stop_token_ids(257); });
  ExpectBad("sampling.logit_bias[257]", "outside the vocabulary of 257 tokens",
            [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[257] = 1; });
  ExpectBad("sampling.logit_bias[3]", "it must be -100 to 100",
            [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[3] = 101; });
  ExpectBad("sampling.logit_bias", "has size 1025; it must be at most 1024", [](auto& r) {
    for (uint32_t i = 0; i < 1025; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
  });
}

TEST_F(ValidationTest, RefusesStopStringsSaltsNamesAndPrioritiesOutOfRange) {
  ExpectBad("stop", "has size 17; it must be at most 16", [](auto& r) {
    for (int i = 0; i < 17; ++i) r.add_stop("x");
  });
  ExpectBad("stop[0]", "has size 0; it must be 1 to 256 bytes", [](auto& r) { r.add_stop(""); });
  ExpectBad("stop[1]", "has size 257", [](auto& r) {
    r.add_stop("fine");
    r.add_stop(std::string(257, 'x'));
  });
  ExpectBad("cache_salt", "has size 257; it must be at most 256 bytes",
            [](auto& r) { r.set_cache_salt(std::string(257, 'x')); });
  ExpectBad("request_id", "has size 129; it must be at most 128",
            [](auto& r) { r.set_request_id(std::string(129, 'x')); });
  ExpectBad("request_id", "outside A-Z a-z 0-9 . _ : -", [](auto& r) { r.set_request_id("a b"); });
  ExpectBad("priority", "priority is 11; it must be 0 to 10", [](auto& r) { r.set_priority(11); });
  ExpectBad("priority", "priority is -1; it must be 0 to 10", [](auto& r) { r.set_priority(-1); });
  EXPECT_TRUE(Parse([](auto& r) {
                r.set_n(1);
                r.set_beam_width(1);
                r.set_request_id("A-z.0_9:-");
                r.set_priority(10);
              }).ok());
}

TEST_F(ValidationTest, SamplesAreOneToSixtyFourAndFitTheScheduler) {
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

TEST_F(ValidationTest, ABeamSearchHasItsDefaultsOrWhatWasGiven) {
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

TEST_F(ValidationTest, RefusesBeamSearchesOutOfRange) {
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

TEST_F(ValidationTest, RefusesFieldsOfABeamSearchWithoutBeams) {
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

TEST_F(ValidationTest, RefusesWhatHasNoMeaningBesideBeamsByItsName) {
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

TEST_F(ValidationTest, ABeamSearchTakesValuesThatAreOffAndWhatEndsIt) {
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

TEST_F(ValidationTest, AnEchoForManySamplesIsBounded) {
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

TEST_F(ValidationTest, RefusesChatsThatCannotBeRendered) {
  const auto message = [](v1::GenerateRequest& r) -> v1::ChatMessage& {
    auto& added = *r.mutable_chat()->add_messages();
    added.set_role("user");
    return added;
  };
  ExpectBad("chat.messages", "has 0 entries; it must have 1 to 1024",
            [](auto& r) { r.mutable_chat(); });
  ExpectBad("chat.messages", "has 1025 entries", [&](auto& r) {
    for (int i = 0; i < 1025; ++i) message(r);
  });
  ExpectBad("chat.messages[0].role", "has 0 bytes; it must have 1 to 64",
            [&](auto& r) { message(r).clear_role(); });
  ExpectBad("chat.messages", "they must have at most 4194304",
            [&](auto& r) { message(r).set_content(std::string(kMaxPromptBytes + 1, 'x')); });
  ExpectBad("chat.messages[0].tool_calls_json", "must be a JSON array",
            [&](auto& r) { message(r).set_tool_calls_json("{}"); });
  ExpectBad("chat.tools_json", "is not JSON", [&](auto& r) {
    message(r);
    r.mutable_chat()->set_tools_json("[");
  });
  ExpectBad("chat.tools_json", "nests 65 deep; the limit is 64", [&](auto& r) {
    message(r);
    r.mutable_chat()->set_tools_json(std::string(65, '[') + std::string(65, ']'));
  });
  ExpectBad("chat.template_variables_json", "must be a JSON object", [&](auto& r) {
    message(r);
    r.mutable_chat()->set_template_variables_json("[]");
  });
  ExpectBad("chat.template_variables_json", "it must have at most 1048576", [&](auto& r) {
    message(r);
    r.mutable_chat()->set_template_variables_json(std::string(kMaxJsonBytes + 1, ' '));
  });
  ServedModel plain = SmallModel();
  plain.chat_template = nullptr;
  v1::GenerateRequest request;
  message(request);
  const absl::Status status = ParseGenerate(request, plain, {}, 0).status();
  EXPECT_EQ(FieldOf(status), "chat");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no chat template"));
}

TEST_F(ValidationTest, TokenizeTreatsSpecialTokensAsTextWhenAsked) {
  v1::TokenizeRequest request;
  request.set_text("<end>");
  EXPECT_THAT(ParseTokenize(request, model_)->token_ids, ElementsAre(kEndToken));
  request.set_plain_special_tokens(true);
  EXPECT_EQ(ParseTokenize(request, model_)->token_ids.size(), 5u);
  EXPECT_EQ(FieldOf(ParseTokenize({}, model_).status()), "prompt");
}

TEST_F(ValidationTest, DetokenizeLookupAndAbortCheckTheirLists) {
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(257);
  EXPECT_EQ(FieldOf(ParseDetokenize(detokenize, model_).status()), "token_ids[0]");
  v1::LookupPrefixRequest lookup;
  EXPECT_EQ(FieldOf(ParseLookup(lookup, model_).status()), "prompt");
  lookup.mutable_token_ids();
  EXPECT_EQ(FieldOf(ParseLookup(lookup, model_).status()), "token_ids.ids");
  lookup.set_cache_salt(std::string(257, 'x'));
  EXPECT_EQ(FieldOf(ParseLookup(lookup, model_).status()), "cache_salt");
  v1::AbortRequest abort;
  for (int i = 0; i < 1025; ++i) abort.add_request_ids("r");
  EXPECT_EQ(FieldOf(ParseAbort(abort).status()), "request_ids");
}

}  // namespace
}  // namespace octavo
