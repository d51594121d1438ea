#pragma once

// Special tokens: strings that are one token wherever they stand in the text, cut out before
// anything else looks at it. In: text. Out: the next special token in it. The match is the
// leftmost, and of those the longest. Immutable once made; shared by all threads. Linear: at most
// the longest special token is read again at each place where one could begin.

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/model/byte_trie.h"
#include "common/model/vocabulary.h"

namespace octavo {

class SpecialTokens {
 public:
  struct Match {
    size_t offset = 0;
    size_t length = 0;
    TokenId id = 0;
  };

  // All control and user-defined tokens of `vocabulary`, which need not outlive this.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The first special token at or after `from`. Control tokens count only if `with_control`.
  std::optional<Match> FindNext(absl::string_view text, size_t from, bool with_control) const;

  // The special token that is exactly `text`.
  std::optional<TokenId> Find(absl::string_view text) const;

 private:
  struct Entry {
    TokenId id = -1;  // -1: no special token ends at this node
    bool is_control = false;
  };

  ByteTrie trie_;
  std::vector<Entry> entries_;            // by node of trie_
  std::array<bool, 256> can_begin_ = {};  // by first byte
};

}  // namespace octavo
