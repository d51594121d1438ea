#pragma once

// The one way into a thread that owns state: many producers push values, the owner takes them all
// at once and sleeps when there are none. Bounded twice: `capacity` values from producers that can
// be refused, and as many again from those that cannot be (results of steps, ends of calls), whose
// number is bounded by what the owner itself has outstanding; more than that is a fault of ours.
//
// Thread-safe; one consumer. A std::mutex, because TSan does not see through Debian's
// uninstrumented absl::Mutex. Invariants: (1) size <= 2 * capacity. (2) Values of one producer come
// out in the order it pushed them. (3) After Close nothing is accepted, and what was accepted still
// comes out.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "glog/logging.h"

namespace octavo {

template <typename T>
class Inbox {
 public:
  explicit Inbox(size_t capacity) : capacity_(capacity) { CHECK_GT(capacity, 0u); }

  // False when full or closed, and then `value` is unchanged: the producer tells its caller to come
  // back later.
  bool TryPush(T&& value) {
    std::lock_guard lock(mutex_);
    if (closed_ || values_.size() >= capacity_) return false;
    values_.push_back(std::move(value));
    news_.notify_one();
    return true;
  }

  // For values that must arrive. False only when closed.
  bool Push(T&& value) {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    CHECK_LT(values_.size(), 2 * capacity_) << "inbox holds more than its owner has outstanding";
    values_.push_back(std::move(value));
    news_.notify_one();
    return true;
  }

  // All values pushed so far, oldest first. Waits for the first one until `deadline`
  // (absl::InfiniteFuture: as long as it takes); empty at the deadline or when closed and drained.
  std::vector<T> TakeAll(absl::Time deadline) {
    std::unique_lock lock(mutex_);
    const auto has_news = [this] { return closed_ || !values_.empty(); };
    if (deadline == absl::InfiniteFuture()) {
      news_.wait(lock, has_news);
    } else {
      news_.wait_until(lock, absl::ToChronoTime(std::max(deadline, absl::UnixEpoch())), has_news);
    }
    std::vector<T> taken;
    taken.swap(values_);
    return taken;
  }

  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    news_.notify_one();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable news_;
  std::vector<T> values_;
  bool closed_ = false;
};

}  // namespace octavo
