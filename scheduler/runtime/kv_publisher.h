#pragma once

// Hands what happens to the prefix index (scheduler/core/kv_events.h) to whoever watches it. A new
// watcher gets a snapshot first, then every change after it; all watchers share one copy of a
// change. The engine records only while somebody watches.
//
// Thread-compatible: owned by the loop.
// Invariants: (1) at most kMaxKvWatchers. (2) A watcher that says it is too far behind is ended
// with RESOURCE_EXHAUSTED and forgotten: what is kept for it is bounded by its sink, not by its
// reading.

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/core/engine.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

constexpr size_t kMaxKvWatchers = 16;

class KvPublisher {
 public:
  // `engine` is borrowed.
  explicit KvPublisher(Engine* engine) : engine_(engine) {}

  // Writes the snapshot to `watcher`, and from now on what changes. ResourceExhausted with the
  // limit when there are too many; then the watcher saw nothing.
  absl::Status Add(std::shared_ptr<KvEventSink> watcher);
  // Hands out what was recorded since the last call, and forgets who is gone.
  void Publish();
  // Ends every watcher.
  void EndAll(const absl::Status& status);

  size_t watcher_count() const { return watchers_.size(); }

 private:
  Engine* const engine_;
  std::vector<std::shared_ptr<KvEventSink>> watchers_;
};

}  // namespace octavo
