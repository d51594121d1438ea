#pragma once

// The sequences that wait for a place: in the order of priority (lower is sooner), then arrival, so
// that a preempted one comes back before everybody who came after it. Paused ones are not in it.
//
// Thread-compatible. Push and remove cost O(log n); the head is there at once, however many wait
// behind it. The limits on what may wait are the engine's (EngineOptions::max_waiting_*), which
// counts paused ones too.

#include <cstdint>

#include "absl/container/btree_map.h"
#include "glog/logging.h"
#include "scheduler/core/sequence.h"

namespace octavo {

class RequestQueue {
 public:
  using Map = absl::btree_map<QueueKey, SequenceSlot>;

  // REQUIRES: no other sequence in it has this key.
  void Push(QueueKey key, SequenceSlot slot) {
    CHECK(slots_.emplace(key, slot).second) << "two sequences with arrival " << key.arrival;
  }
  // REQUIRES: it is in the queue.
  void Remove(QueueKey key) { CHECK_EQ(slots_.erase(key), 1u); }

  bool empty() const { return slots_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  // In order: pairs of key and slot.
  Map::const_iterator begin() const { return slots_.begin(); }
  Map::const_iterator end() const { return slots_.end(); }

 private:
  Map slots_;
};

}  // namespace octavo
