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
#include "tests/unit/scheduler/rpc/validation_fixture.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ValidationTest : public ValidationFixture {};

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
