#pragma once

// The one way into a thread that owns state: many producers push values, the owner takes them all
// at once and sleeps when there are none. Bounded twice: `capacity` values from producers that can
// be refused, and as many again from those that cannot be (results of steps, ends of calls), whose
// number is bounded by what the owner itself has outstanding; more than that is a fault of ours.
//
// Thread-safe; one consumer.
// Invariants: (1) size <= 2 * capacity. (2) Values of one producer come out in the order it pushed
// them. (3) After Close nothing is accepted, and what was accepted still comes out.

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "glog/logging.h"

namespace octavo {

template <typename T>
class Inbox {
 public:
  explicit Inbox(size_t capacity) : capacity_(capacity) { CHECK_GT(capacity, 0u); }

  // False when full or closed, and then `value` is unchanged: the producer tells its caller to come
  // back later.
  bool TryPush(T&& value) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || values_.size() >= capacity_) return false;
    values_.push_back(std::move(value));
    return true;
  }

  // For values that must arrive. False only when closed.
  bool Push(T&& value) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    CHECK_LT(values_.size(), 2 * capacity_) << "inbox holds more than its owner has outstanding";
    values_.push_back(std::move(value));
    return true;
  }

  // All values pushed so far, oldest first. Waits for the first one until `deadline`
  // (absl::InfiniteFuture: as long as it takes); empty at the deadline or when closed and drained.
  std::vector<T> TakeAll(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithDeadline(absl::Condition(this, &Inbox::HasNews), deadline);
    std::vector<T> taken;
    taken.swap(values_);
    return taken;
  }

  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  bool closed() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  bool HasNews() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return closed_ || !values_.empty(); }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::vector<T> values_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo
