#include "scheduler/runtime/sequence_text.h"

#include <algorithm>
#include <utility>

namespace octavo {

SequenceText::SequenceText(uint32_t index, const SamplingParams* sampling,
                           const std::vector<std::string>* stop, const Tokenizer* tokenizer,
                           StopStringMatcher matcher)
    : sampling_(sampling), stop_(stop), detokenizer_(tokenizer), matcher_(std::move(matcher)) {
  pending_.index = index;
}

bool SequenceText::Take(const TokenOutcome& outcome, std::span<const TokenLogprob> top) {
  if (ended_) return false;
  const TokenId id = outcome.token_id;
  // Stop strings count only in the text after min_tokens tokens.
  const bool past_minimum = token_count_ >= sampling_->min_tokens;
  ++token_count_;
  pending_.token_ids.push_back(id);
  if (sampling_->logprobs) {
    pending_.logprobs.push_back(
        {.chosen = TokenLogprob{id, outcome.logprob}, .top = {top.begin(), top.end()}});
  }
  const std::vector<TokenId>& stops = sampling_->stop_token_ids;
  if (past_minimum && std::find(stops.begin(), stops.end(), id) != stops.end())
    return true;  // ends the text, unseen
  const std::string text = detokenizer_.Append(id);
  if (past_minimum) {
    AppendText(text);
  } else {
    pending_.text += text;
  }
  return true;
}

void SequenceText::AppendText(absl::string_view text) {
  if (text.empty()) return;
  StopStringMatcher::Result result = matcher_.Append(text);
  pending_.text += result.text;
  if (!result.matched) return;
  stop_untold_ = true;
  End({.reason = FinishReason::kStopString, .matched_string = (*stop_)[*result.matched]});
}

void SequenceText::Complete(const SequenceFinished& finished) {
  for (const TokenId id : finished.tokens) Take({.token_id = id}, {});
  if (!ended_) {
    // Half a character at the end becomes U+FFFD; what was held back for a stop string is text
    // after all.
    AppendText(detokenizer_.Finish());
  }
  stop_untold_ = false;
  if (ended_) return;
  pending_.text += matcher_.Finish();
  SequenceEnd end{.reason = finished.reason, .matched_token = finished.stop_token};
  if (!finished.tokens.empty()) end.score = finished.score;
  End(std::move(end));
}

void SequenceText::End(SequenceEnd end) {
  ended_ = true;
  reason_ = end.reason;
  pending_.end = std::move(end);
}

std::optional<StreamChunk> SequenceText::TakeChunk() {
  if (pending_.token_ids.empty() && pending_.text.empty() && !pending_.end) return std::nullopt;
  const uint32_t index = pending_.index;
  return std::exchange(pending_, StreamChunk{.index = index});
}

std::optional<uint32_t> SequenceText::TakeStop() {
  if (!std::exchange(stop_untold_, false)) return std::nullopt;
  return token_count_;
}

}  // namespace octavo
