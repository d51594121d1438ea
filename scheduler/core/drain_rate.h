#pragma once

// How fast the queue drains, measured, so that a refused client can be told when to come back.
//
// While requests wait, each one that ends (finished, cancelled, expired; running or waiting) makes
// room for another: ends a second, and prompt tokens of those a second, are the rate at which the
// queue moves. (Admissions a second would count a preempted request twice.) It is measured over the
// last kWindow, or since requests began to wait, whichever is shorter: requests that end while
// nobody waits say how many came, not how many could be served.
//
// Thread-compatible; deterministic: event times in, durations out. An end costs O(1), a question
// O(log kMaxEnds). Bounded: at most kMaxEnds ends are kept; with more the window is shorter.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace octavo {

class DrainRate {
 public:
  static constexpr absl::Duration kWindow = absl::Seconds(30);
  static constexpr size_t kMaxEnds = 1024;
  // A few ends in the first moment are no rate yet: what was measured over less counts as measured
  // over this.
  static constexpr absl::Duration kMinSpan = absl::Seconds(1);
  // What is told lies between these.
  static constexpr absl::Duration kShortest = absl::Milliseconds(100);
  static constexpr absl::Duration kLongest = absl::Minutes(1);

  // Requests begin to wait, or whoever serves them changes: earlier ends do not count.
  void Restart(absl::Time now);

  // A request with so many prompt tokens ended, and others wait. `now` never goes back.
  void OnRequestEnded(absl::Time now, uint64_t prompt_tokens);

  // How long until so many more requests, or requests with so many prompt tokens, will have ended:
  // between kShortest and kLongest. With no end to go by: as long as there has been none, at least
  // kMinSpan.
  absl::Duration TimeForRequests(uint64_t count, absl::Time now) const;
  absl::Duration TimeForTokens(uint64_t count, absl::Time now) const;

 private:
  struct End {
    absl::Time at;
    uint64_t tokens_before = 0;  // prompt tokens of all ends before it
  };

  // Start of what is measured over.
  absl::Time Since(absl::Time now) const;
  // The oldest end after that.
  std::deque<End>::const_iterator First(absl::Time now) const;
  // Time for `count` when `measured` took from Since(now) to now.
  absl::Duration Extrapolate(uint64_t count, uint64_t measured, absl::Time now) const;

  absl::Time since_ = absl::InfinitePast();  // ends up to then do not count
  std::deque<End> ends_;                     // oldest first
  uint64_t tokens_ = 0;                      // of all ends
};

}  // namespace octavo
