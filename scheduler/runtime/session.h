#pragma once

// One request on its way out: tokens of the engine in, chunks for the client out. Turns tokens into
// text (never splitting a character), withholds what could become a stop string, ends the stream at
// one, and keeps counts.
//
// Thread-compatible: owned by the loop.
// Invariants: (1) the texts of the completion chunks, put together, are the replacement decoding of
// the completion's tokens, up to the stop token or stop string. (2) After the token that completes
// a stop string, tokens are ignored. (3) completion_tokens of a chunk is the number of completion
// token ids sent up to and including it. (4) The sink sees exactly one End.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/detokenizer.h"
#include "common/model/stop_strings.h"
#include "common/model/tokenizer.h"
#include "common/sampling_params.h"
#include "scheduler/core/actions.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

// Prompt chunks of an echo hold at most this many tokens, so that log-probabilities fit a message.
constexpr size_t kMaxEchoTokensPerChunk = 1024;

struct SessionOptions {
  std::vector<std::string> stop;  // checked at the border: what StopStringMatcher takes
  // As the engine has them; stop strings count only in the text after sampling.min_tokens tokens.
  SamplingParams sampling;
  uint32_t prompt_token_count = 0;
  std::optional<uint32_t> max_tokens;
  // With echo only: what is shown of the prompt.
  bool echo = false;
  std::string prompt_text;
  std::vector<TokenId> prompt;
};

class Session {
 public:
  // `tokenizer` is borrowed. InvalidArgument for stop strings that StopStringMatcher refuses.
  static absl::StatusOr<std::unique_ptr<Session>> Create(RequestId request_id,
                                                         SessionOptions options,
                                                         const Tokenizer* tokenizer,
                                                         std::shared_ptr<TokenSink> sink,
                                                         absl::Time submitted);

  void Admit(uint32_t cached_token_count);

  // One token of a step. `top`: its alternatives.
  void Take(const GeneratedToken& token, std::span<const TokenLogprob> top);

  // Writes what has come together since the last time. False when the reader is behind.
  bool Flush();

  // Its sequence is complete; Finish follows.
  void Complete(const SequenceFinished& finished);
  // Ends the stream with what is unwritten. A stop string found in the same step wins over the
  // engine's reason.
  void Finish(const RequestFinished& finished);
  // Ends a request that never ran.
  void Refuse(const absl::Status& status);

  // A stop string is complete: the engine is to be told, with this many tokens kept.
  std::optional<uint32_t> kept_token_count() const {
    return matched_stop_ ? std::optional<uint32_t>(usage_.completion_tokens) : std::nullopt;
  }

  RequestId request_id() const { return request_id_; }
  const UsageCounts& usage() const { return usage_; }
  const SessionOptions& options() const { return options_; }
  absl::Time submitted() const { return submitted_; }

  // Kept for the loop: when the last token came, and since when the reader has been too slow.
  absl::Time last_token = absl::InfinitePast();
  std::optional<absl::Time> paused_since;
  // Ends the request with this instead of what the engine says (drain timeout, no replica, slow
  // reader).
  absl::Status override_status;

 private:
  Session(RequestId request_id, SessionOptions options, const Tokenizer* tokenizer,
          StopStringMatcher matcher, std::shared_ptr<TokenSink> sink, absl::Time submitted);

  void TakeScored(const GeneratedToken& token, std::span<const TokenLogprob> top);
  void TakeSampled(const GeneratedToken& token, std::span<const TokenLogprob> top);
  void AppendText(absl::string_view text);
  void WriteEcho();

  const RequestId request_id_;
  SessionOptions options_;
  const std::shared_ptr<TokenSink> sink_;
  const absl::Time submitted_;
  Detokenizer detokenizer_;
  StopStringMatcher matcher_;
  UsageCounts usage_;
  StreamChunk pending_;
  std::vector<TokenAlternatives>
      prompt_logprobs_;  // with echo and logprobs: of prompt tokens 0, 1, …
  bool echo_written_ = false;
  std::optional<TokenId> stop_token_;
  std::optional<size_t> matched_stop_;  // index into options_.stop
  bool ended_ = false;
};

}  // namespace octavo
