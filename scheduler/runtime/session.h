#pragma once

// One request on its way out: tokens of the engine in, chunks for the client out, of one sequence
// or of several (parallel samples, the hypotheses of a beam search). sequence_text.h makes text of
// the tokens of each; this puts their chunks into one stream and keeps its counts.
//
// Thread-compatible: owned by the loop.
// Invariants: (1) the last chunk of an index carries its end, and nothing of that index follows.
// (2) completion_tokens of a chunk is the number of completion token ids sent up to and including
// it, those of all indexes together; while a beam search runs it is how far its beams are. (3) The
// sink sees exactly one End, OK only after the last chunk of every index.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/stop_strings.h"
#include "common/model/tokenizer.h"
#include "common/sampling_params.h"
#include "scheduler/core/actions.h"
#include "scheduler/runtime/ports.h"
#include "scheduler/runtime/sequence_text.h"

namespace octavo {

// Prompt chunks of an echo hold at most this many tokens, so that log-probabilities fit a message.
constexpr size_t kMaxEchoTokensPerChunk = 1024;

struct SessionOptions {
  std::vector<std::string> stop;  // checked at the border: what StopStringMatcher takes
  // As the engine has them; stop strings count only in the text after sampling.min_tokens tokens.
  SamplingParams sampling;
  uint32_t sequence_count = 1;  // samples, or hypotheses to return; at least 1
  uint32_t prompt_token_count = 0;
  std::optional<uint32_t> max_tokens;
  // With echo only: what is shown of the prompt, before each sequence.
  bool echo = false;
  std::string prompt_text;
  std::vector<TokenId> prompt;
};

// A sequence that a stop string ended, as the engine is to be told.
struct StoppedSequence {
  uint32_t index = 0;
  uint32_t kept_token_count = 0;

  friend bool operator==(const StoppedSequence&, const StoppedSequence&) = default;
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

  // A step of a beam search is done.
  void Advance(const BeamsAdvanced& advanced);

  // A sequence is complete. A stop string found in the same step wins over the engine's reason.
  void Complete(const SequenceFinished& finished);

  // Writes what has come together since the last time. False when the reader is behind.
  bool Flush();

  // The sequences that stop strings ended since the last time, unless the engine says that they are
  // complete.
  std::vector<StoppedSequence> TakeStopped();

  // Ends the stream with what is unwritten, and says what the client was told: the engine's reason,
  // or, when all sequences had ended, that of the last of them.
  FinishReason Finish(const RequestFinished& finished);
  // Ends a request that never ran.
  void Refuse(const absl::Status& status);

  // All sequences have ended; Finish follows.
  bool complete() const { return ended_count_ == sequences_.size(); }

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
          std::vector<StopStringMatcher> matchers, std::shared_ptr<TokenSink> sink,
          absl::Time submitted);

  void TakeScored(const GeneratedToken& token, std::span<const TokenLogprob> top);
  void TakeSampled(const GeneratedToken& token, std::span<const TokenLogprob> top);
  // The sequence has taken something in: counts, and notes its end.
  void Count(const SequenceText& sequence, uint32_t token_count_before, bool ended_before);
  void WriteEcho();

  const RequestId request_id_;
  SessionOptions options_;
  const std::shared_ptr<TokenSink> sink_;
  const absl::Time submitted_;
  std::vector<SequenceText> sequences_;  // by index
  size_t ended_count_ = 0;
  FinishReason last_reason_ = FinishReason::kError;  // of the sequence that ended last
  UsageCounts usage_;                                // of all that was taken
  uint32_t sent_token_count_ = 0;                    // of the completion
  std::optional<uint32_t> progress_;                 // of a beam search, unwritten
  std::vector<TokenAlternatives>
      prompt_logprobs_;  // with echo and logprobs: of prompt tokens 0, 1, …
  bool echo_written_ = false;
  bool ended_ = false;
};

}  // namespace octavo
