#include "scheduler/runtime/session.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace octavo {
namespace {

StreamEnd MakeEnd(const RequestFinished& finished) {
  StreamEnd end;
  end.status = finished.status;
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
  std::vector<StopStringMatcher> matchers;
  for (uint32_t i = 0; i < options.sequence_count; ++i) {
    absl::StatusOr<StopStringMatcher> matcher = StopStringMatcher::Create(options.stop);
    if (!matcher.ok()) return matcher.status();
    matchers.push_back(*std::move(matcher));
  }
  return std::unique_ptr<Session>(new Session(request_id, std::move(options), tokenizer,
                                              std::move(matchers), std::move(sink), submitted));
}

Session::Session(RequestId request_id, SessionOptions options, const Tokenizer* tokenizer,
                 std::vector<StopStringMatcher> matchers, std::shared_ptr<TokenSink> sink,
                 absl::Time submitted)
    : request_id_(request_id),
      options_(std::move(options)),
      sink_(std::move(sink)),
      submitted_(submitted) {
  for (uint32_t i = 0; i < options_.sequence_count; ++i)
    sequences_.emplace_back(i, &options_.sampling, &options_.stop, tokenizer,
                            std::move(matchers[i]));
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
  if (!options_.echo || echo_written_ || token.outcome.position != prompt_logprobs_.size()) return;
  prompt_logprobs_.push_back({.chosen = TokenLogprob{token.outcome.token_id, token.outcome.logprob},
                              .top = {top.begin(), top.end()}});
}

void Session::TakeSampled(const GeneratedToken& token, std::span<const TokenLogprob> top) {
  if (options_.echo && !echo_written_) WriteEcho();
  SequenceText& sequence = sequences_.at(token.sequence_index);
  const uint32_t count = sequence.token_count();
  const bool ended = sequence.ended();
  sequence.Take(token.outcome, top);
  Count(sequence, count, ended);
}

void Session::Advance(const BeamsAdvanced& advanced) { progress_ = advanced.token_count; }

void Session::Complete(const SequenceFinished& finished) {
  SequenceText& sequence = sequences_.at(finished.sequence_index);
  const uint32_t count = sequence.token_count();
  const bool ended = sequence.ended();
  sequence.Complete(finished);
  Count(sequence, count, ended);
}

void Session::Count(const SequenceText& sequence, uint32_t token_count_before, bool ended_before) {
  usage_.completion_tokens += sequence.token_count() - token_count_before;
  if (!sequence.ended() || ended_before) return;
  ++ended_count_;
  last_reason_ = sequence.reason();
}

bool Session::Flush() {
  bool keeps_up = true;
  for (SequenceText& sequence : sequences_) {
    std::optional<StreamChunk> chunk = sequence.TakeChunk();
    if (!chunk) continue;
    progress_.reset();
    sent_token_count_ += static_cast<uint32_t>(chunk->token_ids.size());
    chunk->usage = usage_;
    chunk->usage.completion_tokens = sent_token_count_;
    keeps_up = sink_->Write(*std::move(chunk)) && keeps_up;
  }
  if (!progress_) return keeps_up;
  StreamChunk chunk{.usage = usage_};
  chunk.usage.completion_tokens = *std::exchange(progress_, std::nullopt);
  return sink_->Write(std::move(chunk));
}

std::vector<StoppedSequence> Session::TakeStopped() {
  std::vector<StoppedSequence> stopped;
  for (uint32_t i = 0; i < sequences_.size(); ++i) {
    if (const auto kept = sequences_[i].TakeStop()) stopped.push_back({i, *kept});
  }
  return stopped;
}

void Session::WriteEcho() {
  echo_written_ = true;
  const std::vector<TokenId>& prompt = options_.prompt;
  for (uint32_t index = 0; index < sequences_.size(); ++index) {
    for (size_t first = 0; first < prompt.size(); first += kMaxEchoTokensPerChunk) {
      const size_t last = std::min(prompt.size(), first + kMaxEchoTokensPerChunk);
      StreamChunk chunk{.index = index, .is_prompt = true};
      if (first == 0) chunk.text = options_.prompt_text;
      chunk.token_ids.assign(prompt.begin() + first, prompt.begin() + last);
      if (options_.sampling.logprobs && prompt_logprobs_.size() >= last) {
        chunk.logprobs.assign(prompt_logprobs_.begin() + first, prompt_logprobs_.begin() + last);
      }
      chunk.usage = usage_;
      chunk.usage.completion_tokens = sent_token_count_;
      sink_->Write(std::move(chunk));
    }
  }
  prompt_logprobs_ = {};
  options_.prompt = {};
  options_.prompt_text = {};
}

FinishReason Session::Finish(const RequestFinished& finished) {
  CHECK(!ended_) << "request " << request_id_ << " ends twice";
  CHECK(!finished.status.ok() || complete())
      << "request " << request_id_ << " ends well with " << ended_count_ << " of "
      << sequences_.size() << " sequences";
  ended_ = true;
  Flush();
  StreamEnd end = MakeEnd(finished);
  if (complete()) {
    end.status = absl::OkStatus();
  } else if (!override_status.ok()) {
    end.status = override_status;
  }
  sink_->End(std::move(end));
  return complete() ? last_reason_ : finished.reason;
}

void Session::Refuse(const absl::Status& status) {
  CHECK(!ended_) << "request " << request_id_ << " ends twice";
  ended_ = true;
  StreamEnd end;
  end.status = override_status.ok() ? status : override_status;
  sink_->End(std::move(end));
}

}  // namespace octavo
