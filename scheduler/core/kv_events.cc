#include "scheduler/core/kv_events.h"

#include <algorithm>
#include <iterator>

#include "common/random.h"

namespace octavo {

uint64_t ScopeDigest(absl::string_view scope) {
  if (scope.empty()) return 0;
  uint64_t digest = 0;
  for (const char byte : scope) digest = Mix64(digest ^ static_cast<uint8_t>(byte));
  return Mix64(digest ^ scope.size());
}

void KvEventRecorder::Begin(Epoch epoch, StepNumber completed) {
  epoch_ = epoch;
  completed_ = completed;
  ahead_.clear();
  ahead_blocks_.clear();
}

void KvEventRecorder::OnStored(BlockStored stored, StepNumber valid_from) {
  if (valid_from <= completed_) {
    events_.emplace_back(epoch_, std::move(stored));
  } else {
    ahead_blocks_.insert(stored.block);
    ahead_.push_back({std::move(stored), valid_from});
  }
}

void KvEventRecorder::OnRemoved(BlockId block) {
  if (ahead_blocks_.erase(block) == 0) {
    events_.emplace_back(epoch_, BlockRemoved{block});
    return;
  }
  // A step that fails takes its blocks back, the last first.
  const auto waiting = std::find_if(ahead_.rbegin(), ahead_.rend(),
                                    [&](const Ahead& it) { return it.stored.block == block; });
  ahead_.erase(std::next(waiting).base());
}

void KvEventRecorder::OnCleared(KvClearReason reason) {
  ahead_.clear();
  ahead_blocks_.clear();
  events_.emplace_back(epoch_, BlocksCleared{.reason = reason});
}

void KvEventRecorder::CompleteThrough(StepNumber step) {
  completed_ = step;
  std::erase_if(ahead_, [this](Ahead& it) {
    if (it.valid_from > completed_) return false;
    ahead_blocks_.erase(it.stored.block);
    events_.emplace_back(epoch_, std::move(it.stored));
    return true;
  });
}

}  // namespace octavo
