#pragma once

// Finds the end of a stream: the first place where a stop string is complete. In: text as it is
// made. Out: text that can be shown, because no stop string can begin in it any more. An
// Aho-Corasick automaton (Aho and Corasick, CACM 18(6), 1975) over all stop strings reads each byte
// once; its state is the longest suffix of the text that begins a stop string, which is exactly
// what must be held back.
//
// Thread-compatible: one per stream.
// Invariants: (1) no byte of a matched stop string is ever returned. (2) What has been returned and
// what is held back, put together, is what was appended before the match. (3) If text and stop
// strings are UTF-8, so is each returned piece. (4) The result does not depend on how the text is
// cut into pieces.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/byte_trie.h"

namespace octavo {

constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopStringBytes = 1024;  // each

class StopStringMatcher {
 public:
  struct Result {
    std::string text;               // can be shown now
    std::optional<size_t> matched;  // index of the stop string that ended the stream
  };

  // No stop strings: everything appended is returned at once. InvalidArgument, naming which, if one
  // is empty, longer than kMaxStopStringBytes or not UTF-8, or if there are more than
  // kMaxStopStrings.
  static absl::StatusOr<StopStringMatcher> Create(const std::vector<std::string>& stop_strings);

  // The match is the stop string that is complete first; of several complete at the same byte, the
  // longest. Text after it is dropped. REQUIRES: no match so far.
  Result Append(absl::string_view text);

  // Ends the stream without a match: the text held back. REQUIRES: no match so far.
  std::string Finish();

  // Bytes waiting because they may begin a stop string.
  size_t held_bytes() const { return held_.size(); }

 private:
  struct State {
    uint32_t fallback = 0;             // the state of the longest proper suffix
    uint32_t depth = 0;                // bytes of the prefix this state stands for
    std::optional<size_t> stop_index;  // the longest stop string that ends here
    uint32_t stop_bytes = 0;           // its length
  };

  void LinkStates();
  uint32_t Next(uint32_t state, unsigned char byte) const;

  ByteTrie trie_;
  std::vector<State> states_ = {State{}};
  uint32_t state_ = 0;
  bool matched_ = false;
  std::string held_;  // its length is states_[state_].depth
};

}  // namespace octavo
