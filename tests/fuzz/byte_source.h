#pragma once

// Reads choices from a fuzzer's input, front to back; when it is used up, every choice is 0 or
// empty. The format is plain, so that a seed can be written by hand: a byte a number, a byte of
// length before a string.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace octavo {

class ByteSource {
 public:
  explicit ByteSource(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  // A number from 0 to `count` - 1. REQUIRES: 1 <= count <= 256.
  size_t Below(size_t count) {
    if (bytes_.empty()) return 0;
    const size_t number = bytes_.front() % count;
    bytes_ = bytes_.subspan(1);
    return number;
  }
  bool Flag() { return Below(2) == 1; }

  // At most `most` bytes. REQUIRES: most <= 255.
  std::string Text(size_t most) { return Take(Below(most + 1)); }

  // All that is left.
  std::string Rest() { return Take(bytes_.size()); }

 private:
  std::string Take(size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return std::string(taken.begin(), taken.end());
  }

  std::span<const uint8_t> bytes_;
};

}  // namespace octavo
