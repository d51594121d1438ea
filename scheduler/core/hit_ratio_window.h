#pragma once

// The prefix hit ratio of the requests admitted last, so that it shows what happens now and not
// since the start.
//
// Thread-compatible. Invariant: the sums are those of the entries; the window holds as many whole
// entries, the newest first, as have at most `request_count` requests together, and always the
// newest one.

#include <cstdint>
#include <deque>

namespace octavo {

class HitRatioWindow {
 public:
  explicit HitRatioWindow(uint32_t request_count) : most_(request_count) {}

  // So many requests asked the index for so many tokens, and found some of them.
  void Add(uint32_t requests, uint64_t queried_tokens, uint64_t hit_tokens);

  // Of all tokens asked for in the window, those found; 0 where none was.
  double ratio() const {
    return queried_ == 0 ? 0 : static_cast<double>(hit_) / static_cast<double>(queried_);
  }

 private:
  struct Entry {
    uint32_t requests;
    uint64_t queried, hit;
  };

  uint32_t most_;
  std::deque<Entry> entries_;  // oldest first
  uint64_t requests_ = 0, queried_ = 0, hit_ = 0;
};

}  // namespace octavo
