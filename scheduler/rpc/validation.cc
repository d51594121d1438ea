#include "scheduler/rpc/validation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"
#include "common/wire/step_codec.h"
#include "scheduler/rpc/chat_prompt.h"
#include "scheduler/rpc/sequences.h"

namespace octavo {
namespace {

using wire::InvalidField;

// "`field` is 7; it must be `rule`".
template <typename Value>
absl::Status OutOfRange(absl::string_view field, const Value& value, absl::string_view rule) {
  return InvalidField(field, absl::StrCat(field, " is ", value, "; it must be ", rule));
}

// "`field` has size 7; it must be `rule`".
absl::Status WrongSize(absl::string_view field, size_t size, absl::string_view rule) {
  return InvalidField(field, absl::StrCat(field, " has size ", size, "; it must be ", rule));
}

absl::Status CheckFloat(absl::string_view field, float value, float low, float high,
                        bool low_included, absl::string_view rule) {
  const bool in_range =
      std::isfinite(value) && (low_included ? value >= low : value > low) && value <= high;
  return in_range ? absl::OkStatus() : OutOfRange(field, value, rule);
}

template <typename Ids>
absl::Status CheckTokenIds(absl::string_view field, const Ids& ids, const ServedModel& model) {
  const uint32_t vocabulary = model.config.vocab_size;
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocabulary) {
      return OutOfRange(absl::StrCat(field, "[", i, "]"), ids[i],
                        absl::StrCat("a token id below the vocabulary size, ", vocabulary));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizedPrompt> TokenizeText(absl::string_view field, const std::string& text,
                                             bool plain_special_tokens, const ServedModel& model) {
  if (text.empty())
    return InvalidField(field, absl::StrCat(field, " is empty; give at least one character"));
  if (text.size() > kMaxPromptBytes) {
    return WrongSize(field, text.size(), absl::StrCat("at most ", kMaxPromptBytes, " bytes"));
  }
  absl::StatusOr<std::vector<TokenId>> ids =
      model.tokenizer->Encode(text, {.parse_special = !plain_special_tokens, .add_bos = true});
  if (!ids.ok()) return InvalidField(field, absl::StrCat(field, ": ", ids.status().message()));
  return TokenizedPrompt{*std::move(ids), text};
}

absl::StatusOr<TokenizedPrompt> TokenizeChat(const v1::ChatPrompt& chat, const ServedModel& model) {
  OCTAVO_ASSIGN_OR_RETURN(std::string rendered, RenderChat(chat, model));
  // The template writes the model's control tokens, and its begin token where there is one.
  absl::StatusOr<std::vector<TokenId>> ids =
      model.tokenizer->Encode(rendered, {.parse_special = true, .add_bos = false});
  if (!ids.ok()) return InvalidField("chat", absl::StrCat("chat: ", ids.status().message()));
  return TokenizedPrompt{*std::move(ids), std::move(rendered)};
}

absl::StatusOr<TokenizedPrompt> TokenizePrompt(const v1::GenerateRequest& request,
                                               const ServedModel& model) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return TokenizeText("text", request.text(), false, model);
    case v1::GenerateRequest::kChat:
      return TokenizeChat(request.chat(), model);
    case v1::GenerateRequest::kTokenIds: {
      const auto& ids = request.token_ids().ids();
      OCTAVO_RETURN_IF_ERROR(CheckTokenIds("token_ids.ids", ids, model));
      return TokenizedPrompt{{ids.begin(), ids.end()}, ""};
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return InvalidField("prompt", "prompt is missing; give text, chat or token_ids");
}

const char* PromptField(const v1::GenerateRequest& request) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return "text";
    case v1::GenerateRequest::kChat:
      return "chat";
    default:
      return "token_ids.ids";
  }
}

absl::Status CheckSampling(const v1::SamplingParams& sampling, const ServedModel& model) {
  const SamplingParams defaults;
  const auto value = [](bool present, float given, float otherwise) {
    return present ? given : otherwise;
  };
  OCTAVO_RETURN_IF_ERROR(
      CheckFloat("sampling.temperature",
                 value(sampling.has_temperature(), sampling.temperature(), defaults.temperature), 0,
                 100, true, "0 to 100"));
  OCTAVO_RETURN_IF_ERROR(CheckFloat("sampling.top_p",
                                    value(sampling.has_top_p(), sampling.top_p(), defaults.top_p),
                                    0, 1, false, "above 0 and at most 1"));
  OCTAVO_RETURN_IF_ERROR(CheckFloat("sampling.min_p",
                                    value(sampling.has_min_p(), sampling.min_p(), defaults.min_p),
                                    0, 1, true, "0 to 1"));
  OCTAVO_RETURN_IF_ERROR(
      CheckFloat("sampling.repetition_penalty",
                 value(sampling.has_repetition_penalty(), sampling.repetition_penalty(),
                       defaults.repetition_penalty),
                 0, 10, false, "above 0 and at most 10"));
  OCTAVO_RETURN_IF_ERROR(
      CheckFloat("sampling.presence_penalty", sampling.presence_penalty(), -2, 2, true, "-2 to 2"));
  OCTAVO_RETURN_IF_ERROR(CheckFloat("sampling.frequency_penalty", sampling.frequency_penalty(), -2,
                                    2, true, "-2 to 2"));
  const int bias_count = static_cast<int>(sampling.logit_bias().size());
  if (bias_count > kMaxLogitBiasEntries) {
    return WrongSize("sampling.logit_bias", bias_count,
                     absl::StrCat("at most ", kMaxLogitBiasEntries));
  }
  for (const auto& [id, bias] : sampling.logit_bias()) {
    const std::string field = absl::StrCat("sampling.logit_bias[", id, "]");
    if (id >= model.config.vocab_size) {
      return InvalidField(field, absl::StrCat(field, " has a key outside the vocabulary of ",
                                              model.config.vocab_size, " tokens"));
    }
    OCTAVO_RETURN_IF_ERROR(CheckFloat(field, bias, -100, 100, true, "-100 to 100"));
  }
  if (sampling.stop_token_ids_size() > kMaxStopTokenIds) {
    return WrongSize("sampling.stop_token_ids", sampling.stop_token_ids_size(),
                     absl::StrCat("at most ", kMaxStopTokenIds));
  }
  OCTAVO_RETURN_IF_ERROR(
      CheckTokenIds("sampling.stop_token_ids", sampling.stop_token_ids(), model));
  if (sampling.logprobs() > kMaxTopLogprobs) {
    return OutOfRange("sampling.logprobs", sampling.logprobs(),
                      absl::StrCat("0 to ", kMaxTopLogprobs));
  }
  return absl::OkStatus();
}

absl::Status CheckRequestId(const std::string& id) {
  if (id.size() > kMaxRequestIdBytes) {
    return WrongSize("request_id", id.size(),
                     absl::StrCat("at most ", kMaxRequestIdBytes, " characters"));
  }
  for (const char c : id) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("._:-").find(c) == absl::string_view::npos) {
      return InvalidField("request_id", "request_id holds a character outside A-Z a-z 0-9 . _ : -");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStopStrings(const v1::GenerateRequest& request) {
  if (request.stop_size() > kMaxClientStopStrings) {
    return WrongSize("stop", request.stop_size(), absl::StrCat("at most ", kMaxClientStopStrings));
  }
  for (int i = 0; i < request.stop_size(); ++i) {
    const size_t bytes = request.stop(i).size();
    if (bytes < 1 || bytes > kMaxClientStopStringBytes) {
      return WrongSize(absl::StrCat("stop[", i, "]"), bytes,
                       absl::StrCat("1 to ", kMaxClientStopStringBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPlainFields(const v1::GenerateRequest& request, const BorderLimits& limits) {
  OCTAVO_RETURN_IF_ERROR(CheckStopStrings(request));
  if (request.cache_salt().size() > kMaxCacheSaltBytes) {
    return WrongSize("cache_salt", request.cache_salt().size(),
                     absl::StrCat("at most ", kMaxCacheSaltBytes, " bytes"));
  }
  if (request.priority() < limits.min_priority || request.priority() > limits.max_priority) {
    return OutOfRange("priority", request.priority(),
                      absl::StrCat(limits.min_priority, " to ", limits.max_priority,
                                   " (--min_priority, --max_priority)"));
  }
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  if (request.has_max_tokens() && request.max_tokens() < 1)
    return OutOfRange("max_tokens", 0, "at least 1");
  return absl::OkStatus();
}

// Prompt, max_tokens and min_tokens against the model's length.
absl::Status CheckLengths(const v1::GenerateRequest& request, size_t prompt_tokens,
                          const ServedModel& model) {
  const uint64_t length = model.config.context_length;
  if (prompt_tokens == 0)
    return InvalidField(PromptField(request), "the prompt has no tokens; give at least one");
  if (prompt_tokens >= length) {
    return InvalidField(
        PromptField(request),
        absl::StrCat("the prompt has ", prompt_tokens, " tokens; the model's length is ", length,
                     ", so that at most ", length - 1, " fit"));
  }
  const uint64_t room = length - prompt_tokens;
  if (request.has_max_tokens() && request.max_tokens() > room) {
    return OutOfRange("max_tokens", request.max_tokens(),
                      absl::StrCat("at most ", room, ": the prompt has ", prompt_tokens,
                                   " tokens and the model's length is ", length));
  }
  const uint64_t most = request.has_max_tokens() ? request.max_tokens() : room;
  if (request.sampling().min_tokens() > most) {
    return OutOfRange("sampling.min_tokens", request.sampling().min_tokens(),
                      absl::StrCat("at most max_tokens, ", most));
  }
  return absl::OkStatus();
}

// An echo is repeated for each sequence, with up to 20 alternatives for each token.
absl::Status CheckEcho(const v1::GenerateRequest& request, uint32_t sequence_count,
                       size_t prompt_tokens) {
  if (!request.echo() || sequence_count == 1 || prompt_tokens * sequence_count <= kMaxEchoTokens)
    return absl::OkStatus();
  return InvalidField("echo",
                      absl::StrCat("echo is set, and the prompt's ", prompt_tokens,
                                   " tokens for each of n = ", sequence_count, " sequences are ",
                                   prompt_tokens * sequence_count, "; they must be at most ",
                                   kMaxEchoTokens, ": echo with n = 1"));
}

// The client's stop tokens and, unless it asked otherwise, the model's end tokens.
std::vector<TokenId> StopTokens(std::vector<TokenId> given, bool ignore_eos,
                                const ServedModel& model) {
  if (!ignore_eos) {
    const auto ends = model.tokenizer->end_of_generation_ids();
    given.insert(given.end(), ends.begin(), ends.end());
  }
  std::sort(given.begin(), given.end());
  given.erase(std::unique(given.begin(), given.end()), given.end());
  return given;
}

}  // namespace

absl::Status CheckModelName(const std::string& name, const ServedModel& model) {
  if (name.empty() || name == model.name) return absl::OkStatus();
  return WithReason(absl::NotFoundError(absl::StrCat(
                        "model \"", name, "\" is not served here; this is \"", model.name, "\"")),
                    "MODEL_NOT_FOUND", {{"model", name}, {"served", model.name}});
}

absl::StatusOr<Submission> ParseGenerate(const v1::GenerateRequest& request,
                                         const ServedModel& model, const BorderLimits& limits,
                                         uint64_t drawn_seed) {
  OCTAVO_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  OCTAVO_RETURN_IF_ERROR(CheckPlainFields(request, limits));
  OCTAVO_RETURN_IF_ERROR(CheckSampling(request.sampling(), model));
  OCTAVO_ASSIGN_OR_RETURN(const RequestedSequences sequences, ParseSequences(request, limits));
  OCTAVO_ASSIGN_OR_RETURN(TokenizedPrompt prompt, TokenizePrompt(request, model));
  OCTAVO_RETURN_IF_ERROR(CheckLengths(request, prompt.token_ids.size(), model));
  OCTAVO_RETURN_IF_ERROR(CheckEcho(request, sequences.returned, prompt.token_ids.size()));
  OCTAVO_ASSIGN_OR_RETURN(SamplingParams sampling, wire::DecodeSampling(request.sampling()));
  sampling.stop_token_ids =
      StopTokens(std::move(sampling.stop_token_ids), request.sampling().ignore_eos(), model);
  if (sequences.beams)
    sampling.temperature = 0;  // absent means its default elsewhere: nothing is drawn

  Submission submission;
  SessionOptions& session = submission.session;
  session.stop.assign(request.stop().begin(), request.stop().end());
  session.sampling = sampling;
  session.sequence_count = sequences.returned;
  session.prompt_token_count = static_cast<uint32_t>(prompt.token_ids.size());
  if (request.has_max_tokens()) session.max_tokens = request.max_tokens();
  session.echo = request.echo();
  if (request.echo()) {
    session.prompt = prompt.token_ids;
    session.prompt_text = std::move(prompt.text);
    if (request.prompt_case() == v1::GenerateRequest::kTokenIds) {
      Detokenizer detokenizer(model.tokenizer.get(), {.show_control = true});
      for (const TokenId id : prompt.token_ids) session.prompt_text += detokenizer.Append(id);
      session.prompt_text += detokenizer.Finish();
    }
  }
  SubmitRequest& engine_request = submission.request;
  engine_request.client_request_id = request.request_id();
  engine_request.prompt = std::move(prompt.token_ids);
  engine_request.seed = request.sampling().has_seed() ? request.sampling().seed() : drawn_seed;
  if (sequences.beams) {
    engine_request.beams = sequences.beams;
  } else {
    engine_request.sample_count = sequences.returned;
  }
  engine_request.max_tokens = session.max_tokens;
  engine_request.cache_salt = request.cache_salt();
  engine_request.no_cache = request.no_cache();
  engine_request.priority = request.priority();
  engine_request.prompt_logprobs = request.echo() && sampling.logprobs.has_value();
  engine_request.sampling = std::move(sampling);
  return submission;
}

absl::StatusOr<TokenizedPrompt> ParseTokenize(const v1::TokenizeRequest& request,
                                              const ServedModel& model) {
  OCTAVO_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  switch (request.prompt_case()) {
    case v1::TokenizeRequest::kText:
      return TokenizeText("text", request.text(), request.plain_special_tokens(), model);
    case v1::TokenizeRequest::kChat:
      return TokenizeChat(request.chat(), model);
    case v1::TokenizeRequest::PROMPT_NOT_SET:
      break;
  }
  return InvalidField("prompt", "prompt is missing; give text or chat");
}

absl::StatusOr<std::vector<TokenId>> ParseDetokenize(const v1::DetokenizeRequest& request,
                                                     const ServedModel& model) {
  OCTAVO_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  if (request.token_ids_size() > kMaxDetokenizeIds) {
    return WrongSize("token_ids", request.token_ids_size(),
                     absl::StrCat("at most ", kMaxDetokenizeIds));
  }
  OCTAVO_RETURN_IF_ERROR(CheckTokenIds("token_ids", request.token_ids(), model));
  return std::vector<TokenId>(request.token_ids().begin(), request.token_ids().end());
}

absl::StatusOr<std::vector<TokenId>> ParseLookup(const v1::LookupPrefixRequest& request,
                                                 const ServedModel& model) {
  if (request.cache_salt().size() > kMaxCacheSaltBytes) {
    return WrongSize("cache_salt", request.cache_salt().size(),
                     absl::StrCat("at most ", kMaxCacheSaltBytes, " bytes"));
  }
  switch (request.prompt_case()) {
    case v1::LookupPrefixRequest::kText: {
      OCTAVO_ASSIGN_OR_RETURN(TokenizedPrompt prompt,
                              TokenizeText("text", request.text(), false, model));
      return std::move(prompt.token_ids);
    }
    case v1::LookupPrefixRequest::kTokenIds: {
      const auto& ids = request.token_ids().ids();
      if (ids.empty())
        return InvalidField("token_ids.ids", "token_ids.ids is empty; give at least one id");
      OCTAVO_RETURN_IF_ERROR(CheckTokenIds("token_ids.ids", ids, model));
      return std::vector<TokenId>(ids.begin(), ids.end());
    }
    case v1::LookupPrefixRequest::PROMPT_NOT_SET:
      break;
  }
  return InvalidField("prompt", "prompt is missing; give text or token_ids");
}

absl::StatusOr<std::vector<std::string>> ParseAbort(const v1::AbortRequest& request) {
  if (request.request_ids_size() > kMaxAbortIds) {
    return WrongSize("request_ids", request.request_ids_size(),
                     absl::StrCat("at most ", kMaxAbortIds));
  }
  return std::vector<std::string>(request.request_ids().begin(), request.request_ids().end());
}

}  // namespace octavo
