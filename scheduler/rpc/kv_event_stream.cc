#include "scheduler/rpc/kv_event_stream.h"

#include <utility>
#include <variant>

#include "scheduler/rpc/token_stream.h"

namespace octavo {
namespace {

size_t BytesOf(const std::vector<KvEvent>& events) {
  size_t bytes = 0;
  for (const KvEvent& event : events) {
    bytes += sizeof(event);
    if (const auto* stored = std::get_if<BlockStored>(&event.change))
      bytes += stored->tokens.size() * sizeof(TokenId);
  }
  return bytes;
}

v1::KvClearReason EncodeReason(KvClearReason reason) {
  switch (reason) {
    case KvClearReason::kSnapshot:
      return v1::KV_CLEAR_REASON_SNAPSHOT;
    case KvClearReason::kReset:
      return v1::KV_CLEAR_REASON_RESET;
    case KvClearReason::kReplicaLost:
      return v1::KV_CLEAR_REASON_REPLICA_LOST;
  }
  return v1::KV_CLEAR_REASON_UNSPECIFIED;
}

struct EventEncoder {
  bool include_tokens;
  v1::KvEvent& message;

  void operator()(const BlockStored& stored) const {
    v1::KvBlockStored& out = *message.mutable_stored();
    out.set_block_id(stored.block.value());
    out.set_prefix_id(stored.prefix);
    out.set_parent_prefix_id(stored.parent_prefix);
    out.set_scope_digest(stored.scope_digest);
    out.set_token_count(static_cast<uint32_t>(stored.tokens.size()));
    if (include_tokens) out.mutable_token_ids()->Add(stored.tokens.begin(), stored.tokens.end());
  }
  void operator()(const BlockRemoved& removed) const {
    message.mutable_removed()->set_block_id(removed.block.value());
  }
  void operator()(const BlocksCleared& cleared) const {
    message.mutable_cleared()->set_reason(EncodeReason(cleared.reason));
    message.mutable_cleared()->set_stored_count(cleared.stored_count);
  }
};

}  // namespace

std::shared_ptr<KvEventStream> KvEventStream::Create(KvEventStreamOptions options) {
  auto stream = std::shared_ptr<KvEventStream>(new KvEventStream(options));
  stream->self_ = stream;
  return stream;
}

bool KvEventStream::Write(std::shared_ptr<const std::vector<KvEvent>> events) {
  absl::MutexLock lock(&mutex_);
  if (finished_ || end_) return true;
  const size_t bytes = BytesOf(*events);
  if (!limit_bytes_) limit_bytes_ = bytes + options_.max_unsent_bytes;
  if (unsent_bytes_ + bytes > *limit_bytes_) return false;
  unsent_bytes_ += bytes;
  unsent_.push_back(std::move(events));
  Advance();
  return true;
}

void KvEventStream::End(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (!end_) end_ = std::move(status);
  unsent_.clear();
  unsent_bytes_ = 0;
  Advance();
}

void KvEventStream::Advance() {
  if (writing_ || finished_) return;
  if (end_) {
    finished_ = true;
    Finish(ClientStatus(*end_));
  } else if (!unsent_.empty()) {
    FillMessage();
    writing_ = true;
    StartWrite(&message_);
  }
}

void KvEventStream::FillMessage() {
  message_.Clear();
  const std::vector<KvEvent>& events = *unsent_.front();
  const Epoch epoch = events[next_].epoch;
  message_.set_epoch(epoch.value());
  message_.set_block_size(options_.block_size);
  for (size_t i = 0; i < kMaxEventsPerMessage && next_ < events.size(); ++i, ++next_) {
    if (events[next_].epoch != epoch) break;
    v1::KvEvent& event = *message_.add_events();
    event.set_sequence_number(next_number_++);
    std::visit(EventEncoder{options_.include_tokens, event}, events[next_].change);
  }
  if (next_ < events.size()) return;
  unsent_bytes_ -= BytesOf(events);
  unsent_.pop_front();
  next_ = 0;
}

void KvEventStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  gone_ = gone_ || !ok;
  Advance();
}

void KvEventStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
  }
  End(absl::CancelledError("the watcher went away"));
}

bool KvEventStream::gone() const {
  absl::MutexLock lock(&mutex_);
  return gone_;
}

void KvEventStream::OnDone() {
  // The loop may still hold its share.
  const std::shared_ptr<KvEventStream> self = std::move(self_);
}

}  // namespace octavo
