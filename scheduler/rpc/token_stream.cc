#include "scheduler/rpc/token_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/sample_seed.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"
#include "glog/logging.h"

namespace octavo {
namespace {

// With UNAVAILABLE: a lost worker is there again, or another server found, in about this time.
constexpr absl::Duration kUnavailableRetryDelay = absl::Seconds(1);

v1::FinishReason EncodeReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kLength:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kModelLength:
      return v1::FINISH_REASON_CONTEXT_LENGTH;
    case FinishReason::kPoolExhausted:
      return v1::FINISH_REASON_POOL_EXHAUSTED;
    case FinishReason::kCancelled:
    case FinishReason::kAborted:
    case FinishReason::kDeadline:
    case FinishReason::kError:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void EncodeTokenLogprob(const TokenLogprob& value, v1::TokenLogprob& message) {
  message.set_token_id(static_cast<uint32_t>(value.token_id));
  message.set_logprob(value.logprob);
}

void EncodeEnd(const SequenceEnd& end, v1::GenerateResponse& message) {
  message.set_finish_reason(EncodeReason(end.reason));
  if (end.matched_string) {
    message.set_matched_string(*end.matched_string);
  } else if (end.matched_token) {
    message.set_matched_token_id(static_cast<uint32_t>(*end.matched_token));
  }
  if (end.score) message.set_score(*end.score);
}

// Whether `next` may travel in the message of `last`.
bool Joins(const StreamChunk& last, const StreamChunk& next) {
  return last.index == next.index && last.is_prompt == next.is_prompt &&
         last.token_ids.size() + next.token_ids.size() <= kMaxTokensPerMessage;
}

std::string Milliseconds(absl::Duration time) {
  return absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(time));
}

}  // namespace

grpc::Status ClientStatus(absl::Status status) {
  if (status.ok()) return grpc::Status::OK;
  if (absl::IsUnavailable(status) && RetryDelay(status) == absl::ZeroDuration()) {
    status = WithRetryDelay(std::move(status), kUnavailableRetryDelay);
  }
  if (!HasReason(status)) {
    const std::string code = absl::StatusCodeToString(status.code());
    status = WithReason(std::move(status), code);
  }
  return wire::ToGrpc(std::move(status));
}

std::shared_ptr<TokenStream> TokenStream::Create(grpc::CallbackServerContext* context, Loop* loop,
                                                 RequestId request_id, StreamLabels labels) {
  auto stream =
      std::shared_ptr<TokenStream>(new TokenStream(context, loop, request_id, std::move(labels)));
  stream->self_ = stream;
  return stream;
}

TokenStream::TokenStream(grpc::CallbackServerContext* context, Loop* loop, RequestId request_id,
                         StreamLabels labels)
    : context_(context), loop_(loop), request_id_(request_id), labels_(std::move(labels)) {
  context_->AddInitialMetadata("x-request-id", labels_.client_request_id);
}

void TokenStream::Admit() {
  absl::MutexLock lock(&mutex_);
  if (!finished_ && !gone_) StartSendInitialMetadata();
}

bool TokenStream::Write(StreamChunk chunk) {
  absl::MutexLock lock(&mutex_);
  if (labels_.log_text && !chunk.is_prompt) logged_texts_[chunk.index] += chunk.text;
  if (gone_) return true;
  Append(std::move(chunk));
  Advance();
  behind_ = behind_ || unsent_tokens_ > kMaxUnsentTokens;
  return !behind_;
}

void TokenStream::Append(StreamChunk chunk) {
  unsent_tokens_ += chunk.token_ids.size();
  if (!unsent_.empty() && Joins(unsent_.back(), chunk)) {
    StreamChunk& last = unsent_.back();
    last.text += chunk.text;
    last.token_ids.insert(last.token_ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    std::move(chunk.logprobs.begin(), chunk.logprobs.end(), std::back_inserter(last.logprobs));
    last.usage = chunk.usage;
    last.end = std::move(chunk.end);
  } else {
    unsent_.push_back(std::move(chunk));
  }
}

void TokenStream::End(StreamEnd end) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [index, text] : logged_texts_) {
    LOG(INFO) << "request " << labels_.client_request_id << " completion " << index << ": " << text;
  }
  end_ = std::move(end);
  Advance();
}

void TokenStream::Advance() {
  if (writing_ || finished_) return;
  if (gone_) {
    unsent_.clear();
    unsent_tokens_ = 0;
  }
  if (!unsent_.empty()) {
    FillMessage(std::move(unsent_.front()));
    unsent_.pop_front();
    writing_ = true;
    StartWrite(&message_);
  } else if (end_) {
    FinishCall();
  }
}

void TokenStream::FillMessage(StreamChunk chunk) {
  writing_tokens_ = chunk.token_ids.size();
  message_.Clear();
  message_.set_request_id(labels_.client_request_id);
  message_.set_index(chunk.index);
  if (labels_.seed) message_.set_seed(SampleSeed(*labels_.seed, chunk.index));
  message_.set_is_prompt(chunk.is_prompt);
  message_.set_text(std::move(chunk.text));
  message_.mutable_token_ids()->Add(chunk.token_ids.begin(), chunk.token_ids.end());
  for (const TokenAlternatives& alternatives : chunk.logprobs) {
    v1::TokenAlternatives& message = *message_.add_logprobs();
    if (alternatives.chosen) EncodeTokenLogprob(*alternatives.chosen, *message.mutable_chosen());
    for (const TokenLogprob& top : alternatives.top) EncodeTokenLogprob(top, *message.add_top());
  }
  if (chunk.end) EncodeEnd(*chunk.end, message_);
  message_.mutable_usage()->set_prompt_tokens(chunk.usage.prompt_tokens);
  message_.mutable_usage()->set_completion_tokens(chunk.usage.completion_tokens);
  message_.mutable_usage()->set_cached_tokens(chunk.usage.cached_tokens);
}

void TokenStream::FinishCall() {
  finished_ = true;
  if (end_->queue_time)
    context_->AddTrailingMetadata("octavo-queue-ms", Milliseconds(*end_->queue_time));
  if (end_->prefill_time)
    context_->AddTrailingMetadata("octavo-prefill-ms", Milliseconds(*end_->prefill_time));
  if (end_->decode_time)
    context_->AddTrailingMetadata("octavo-decode-ms", Milliseconds(*end_->decode_time));
  Finish(ClientStatus(end_->status));
}

void TokenStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  unsent_tokens_ -= std::min(unsent_tokens_, std::exchange(writing_tokens_, 0));
  if (!ok) gone_ = true;  // OnCancel tells the loop
  Advance();
  if (behind_ && unsent_tokens_ == 0) {
    behind_ = false;
    if (!end_) loop_->ReaderCaughtUp(request_id_);
  }
}

void TokenStream::OnCancel() {
  absl::MutexLock lock(&mutex_);
  gone_ = true;
  if (end_) {
    Advance();
    return;
  }
  const bool late = absl::FromChrono(context_->deadline()) <= absl::Now();
  loop_->Cancel(request_id_, late ? CancelReason::kDeadline : CancelReason::kClientGone);
}

void TokenStream::OnDone() {
  // The loop may still hold its share.
  const std::shared_ptr<TokenStream> self = std::move(self_);
}

}  // namespace octavo
