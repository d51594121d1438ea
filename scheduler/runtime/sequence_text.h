#pragma once

// One sequence of a request on its way out: tokens of the engine in, a chunk of text and tokens
// out. Turns tokens into text (never splitting a character), withholds what could become a stop
// string, and ends at one.
//
// Thread-compatible: owned by its session (session.h).
// Invariants: (1) the texts of the chunks, put together, are the replacement decoding of the
// tokens, up to the stop token or stop string. (2) Once it has ended, tokens are ignored. (3)
// Exactly one chunk carries an end, and it is the last.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/detokenizer.h"
#include "common/model/stop_strings.h"
#include "common/model/tokenizer.h"
#include "common/sampling_params.h"
#include "scheduler/core/actions.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

class SequenceText {
 public:
  // What is borrowed outlives this. `matcher` is one for `stop`, as new.
  SequenceText(uint32_t index, const SamplingParams* sampling, const std::vector<std::string>* stop,
               const Tokenizer* tokenizer, StopStringMatcher matcher);

  // One token of a step. `top`: its alternatives. False when it came after the end and is ignored.
  bool Take(const TokenOutcome& outcome, std::span<const TokenLogprob> top);

  // The engine's word that the sequence is complete, with its tokens if it is a hypothesis. A stop
  // string, also one that the last character completes, wins over its reason.
  void Complete(const SequenceFinished& finished);

  // What has come together since the last time, without usage; absent when there is nothing.
  std::optional<StreamChunk> TakeChunk();

  // A stop string ended it and the engine does not know yet: how many tokens belong to the answer.
  // Asking settles it.
  std::optional<uint32_t> TakeStop();

  bool ended() const { return ended_; }
  FinishReason reason() const { return reason_; }  // REQUIRES: ended
  uint32_t token_count() const { return token_count_; }

 private:
  void AppendText(absl::string_view text);
  void End(SequenceEnd end);

  const SamplingParams* const sampling_;
  const std::vector<std::string>* const stop_;
  Detokenizer detokenizer_;
  StopStringMatcher matcher_;
  StreamChunk pending_;
  uint32_t token_count_ = 0;
  bool ended_ = false;
  FinishReason reason_ = FinishReason::kError;
  bool stop_untold_ = false;
};

}  // namespace octavo
