#include "scheduler/runtime/session.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace octavo {
namespace {

StreamEnd MakeEnd(const RequestFinished& finished, std::optional<TokenId> stop_token) {
  StreamEnd end;
  end.status = finished.status;
  end.reason = finished.reason;
  end.matched_token = stop_token;
  if (finished.admitted) {
    end.queue_time = *finished.admitted - finished.submitted;
    end.prefill_time = finished.first_token.value_or(finished.finished) - *finished.admitted;
    if (finished.first_token) end.decode_time = finished.finished - *finished.first_token;
  }
  return end;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(RequestId request_id,
                                                         SessionOptions options,
                                                         const Tokenizer* tokenizer,
                                                         std::shared_ptr<TokenSink> sink,
                                                         absl::Time submitted) {
  absl::StatusOr<StopStringMatcher> matcher = StopStringMatcher::Create(options.stop);
  if (!matcher.ok()) return matcher.status();
  return std::unique_ptr<Session>(new Session(request_id, std::move(options), tokenizer,
                                              *std::move(matcher), std::move(sink), submitted));
}

Session::Session(RequestId request_id, SessionOptions options, const Tokenizer* tokenizer,
                 StopStringMatcher matcher, std::shared_ptr<TokenSink> sink, absl::Time submitted)
    : request_id_(request_id),
      options_(std::move(options)),
      sink_(std::move(sink)),
      submitted_(submitted),
      detokenizer_(tokenizer),
      matcher_(std::move(matcher)) {
  usage_.prompt_tokens = options_.prompt_token_count;
  if (options_.echo && options_.sampling.logprobs)
    prompt_logprobs_.emplace_back();  // nothing predicts the first token
}

void Session::Admit(uint32_t cached_token_count) {
  usage_.cached_tokens = cached_token_count;
  sink_->Admit();
  if (options_.echo && !options_.sampling.logprobs) WriteEcho();
}

void Session::Take(const GeneratedToken& token, std::span<const TokenLogprob> top) {
  if (token.scores_prompt) {
    TakeScored(token, top);
  } else {
    TakeSampled(token, top);
  }
}

void Session::TakeScored(const GeneratedToken& token, std::span<const TokenLogprob> top) {
  // A prompt computed again after a preemption is scored again, with the same bits: take each
  // position once.
  if (!options_.echo || token.outcome.position != prompt_logprobs_.size()) return;
  prompt_logprobs_.push_back({.chosen = TokenLogprob{token.outcome.token_id, token.outcome.logprob},
                              .top = {top.begin(), top.end()}});
}

void Session::TakeSampled(const GeneratedToken& token, std::span<const TokenLogprob> top) {
  if (matched_stop_) return;
  if (options_.echo && !echo_written_) WriteEcho();
  const TokenId id = token.outcome.token_id;
  const bool past_minimum = usage_.completion_tokens >= options_.sampling.min_tokens;
  ++usage_.completion_tokens;
  pending_.token_ids.push_back(id);
  if (options_.sampling.logprobs) {
    pending_.logprobs.push_back(
        {.chosen = TokenLogprob{id, token.outcome.logprob}, .top = {top.begin(), top.end()}});
  }
  const std::vector<TokenId>& stops = options_.sampling.stop_token_ids;
  if (past_minimum && std::find(stops.begin(), stops.end(), id) != stops.end())
    return;  // ends the text, unseen
  const std::string text = detokenizer_.Append(id);
  if (past_minimum) {
    AppendText(text);
  } else {
    pending_.text += text;
  }
}

void Session::AppendText(absl::string_view text) {
  if (text.empty()) return;
  StopStringMatcher::Result result = matcher_.Append(text);
  pending_.text += result.text;
  matched_stop_ = result.matched;
}

bool Session::Flush() {
  if (pending_.token_ids.empty() && pending_.text.empty()) return true;
  pending_.usage = usage_;
  return sink_->Write(std::exchange(pending_, StreamChunk{}));
}

void Session::WriteEcho() {
  echo_written_ = true;
  const std::vector<TokenId>& prompt = options_.prompt;
  for (size_t first = 0; first < prompt.size(); first += kMaxEchoTokensPerChunk) {
    const size_t last = std::min(prompt.size(), first + kMaxEchoTokensPerChunk);
    StreamChunk chunk;
    chunk.is_prompt = true;
    if (first == 0) chunk.text = std::move(options_.prompt_text);
    chunk.token_ids.assign(prompt.begin() + first, prompt.begin() + last);
    if (options_.sampling.logprobs && prompt_logprobs_.size() >= last) {
      chunk.logprobs.assign(prompt_logprobs_.begin() + first, prompt_logprobs_.begin() + last);
    }
    chunk.usage = usage_;
    sink_->Write(std::move(chunk));
  }
  prompt_logprobs_ = {};
}

void Session::Complete(const SequenceFinished& finished) { stop_token_ = finished.stop_token; }

void Session::Finish(const RequestFinished& finished) {
  CHECK(!ended_) << "request " << request_id_ << " ends twice";
  ended_ = true;
  StreamEnd end = MakeEnd(finished, stop_token_);
  if (matched_stop_) {
    end.status = absl::OkStatus();
    end.reason = FinishReason::kStopString;
    end.matched_token = std::nullopt;
    end.matched_string = options_.stop[*matched_stop_];
  } else if (!override_status.ok() && !end.status.ok()) {
    end.status = override_status;
  } else if (end.status.ok()) {
    // Half a character at the end becomes U+FFFD; what was held back for a stop string is text
    // after all.
    AppendText(detokenizer_.Finish());
    if (matched_stop_) {
      end.reason = FinishReason::kStopString;
      end.matched_token = std::nullopt;
      end.matched_string = options_.stop[*matched_stop_];
    } else {
      pending_.text += matcher_.Finish();
    }
  }
  end.last = std::exchange(pending_, StreamChunk{});
  end.last.usage = usage_;
  sink_->End(std::move(end));
}

void Session::Refuse(const absl::Status& status) {
  CHECK(!ended_) << "request " << request_id_ << " ends twice";
  ended_ = true;
  StreamEnd end;
  end.status = override_status.ok() ? status : override_status;
  end.last.usage = usage_;
  sink_->End(std::move(end));
}

}  // namespace octavo
