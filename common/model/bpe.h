#pragma once

// Byte pair encoding of one word (Sennrich, Haddow and Birch, ACL 2016): beginning with a token per
// byte, the adjacent pair whose merge was learned first is joined, the leftmost of equals, until no
// neighbours can be joined. In: a word's bytes. Out: ids.
//
// A heap holds the possible merges and a linked list the tokens that are left, so a word of n bytes
// takes O(n log n). Immutable once made; each caller brings its own BpeScratch.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/model/vocabulary.h"

namespace octavo {

// Working memory of one thread's merges, and a count of the work done with it.
struct BpeScratch {
  struct Symbol {
    TokenId id = 0;
    int32_t previous = -1;  // index of the neighbour that is left, -1 at the border
    int32_t next = -1;
  };
  struct Candidate {
    uint64_t order = 0;  // rank << 32 | position: the smallest is merged next
    TokenId left = 0;    // the pair it was made for; stale once the symbols are others
    TokenId right = 0;
    TokenId merged = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  uint64_t heap_pops = 0;  // candidates taken from the heap so far: the measure of work
};

class BpeMerges {
 public:
  // The merges of `spec`. InvalidArgument, naming the merge, if it is not two tokens of
  // `vocabulary` parted by a space whose concatenation is a token too.
  static absl::StatusOr<BpeMerges> Create(const Vocabulary& vocabulary,
                                          const std::vector<std::string>& merges);

  // Whether the bytes of `id` encode to it alone, so that a word with those bytes needs no merging.
  bool IsWhole(TokenId id) const { return is_whole_[static_cast<size_t>(id)]; }

  // Appends the ids of `word`. Bytes without a token are dropped first. REQUIRES: word.size() <
  // 2^31.
  void Encode(absl::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Merge {
    uint32_t rank = 0;  // position in the list of merges; the lowest goes first
    TokenId id = 0;     // what the pair becomes
  };

  static uint64_t Pair(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // Pushes the merge of the symbol at `position` with its next neighbour, if there is one.
  void PushCandidate(int32_t position, BpeScratch& scratch) const;

  void FindWholeTokens(const Vocabulary& vocabulary);

  std::array<TokenId, 256> byte_ids_;  // -1: no token for this byte
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::vector<bool> is_whole_;  // by id
};

}  // namespace octavo
