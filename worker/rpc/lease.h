#pragma once

// How long the scheduler has been silent. A scheduler that was heard of (a plan, an answered
// registration) holds the worker for the lease it asked for; past that it has lost it.
//
// Thread-safe.

#include <atomic>
#include <cstdint>

#include "common/clock.h"

namespace octavo {

class Lease {
 public:
  // `clock` is borrowed.
  explicit Lease(const Clock& clock) : clock_(clock) { Renew(); }

  void Renew() { heard_ns_.store(absl::ToUnixNanos(clock_.Now())); }

  // A length of zero never expires: there is no replica yet.
  bool Expired(absl::Duration length) const {
    return length > absl::ZeroDuration() &&
           clock_.Now() - absl::FromUnixNanos(heard_ns_.load()) > length;
  }

 private:
  const Clock& clock_;
  std::atomic<int64_t> heard_ns_;
};

}  // namespace octavo
