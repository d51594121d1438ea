#pragma once

// The vocabulary: id to bytes and bytes to id. In: the tokens as model files write them, in the
// byte alphabet. Inside and out: the raw bytes they stand for. Immutable once made; shared by all
// threads.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/model/tokenizer_spec.h"

namespace octavo {

constexpr size_t kMaxVocabularySize = size_t{1} << 24;

class Vocabulary {
 public:
  // InvalidArgument if there are no tokens, too many, or not as many types as tokens, or if one is
  // not UTF-8 as written.
  static absl::StatusOr<Vocabulary> Create(const std::vector<std::string>& tokens,
                                           const std::vector<TokenType>& types);

  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  size_t size() const { return types_.size(); }
  bool IsValid(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < types_.size(); }
  TokenType Type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  bool IsControl(TokenId id) const {
    return Type(id) == TokenType::kControl || Type(id) == TokenType::kUnknown;
  }

  // The bytes a token stands for: what a normal token spells in the byte alphabet; any other token,
  // and one that uses other characters, as it is written.
  absl::string_view Bytes(TokenId id) const {
    const size_t begin = offsets_[static_cast<size_t>(id)];
    return {bytes_.data() + begin, offsets_[static_cast<size_t>(id) + 1] - begin};
  }

  // The token that text with exactly these bytes can become: a normal token spelled in the byte
  // alphabet. Of several, the last.
  std::optional<TokenId> FindText(absl::string_view bytes) const {
    const auto found = text_ids_.find(bytes);
    if (found == text_ids_.end()) return std::nullopt;
    return found->second;
  }

 private:
  Vocabulary() = default;

  // Of all tokens, one after another; a vector, whose bytes stay where they are when it moves.
  std::vector<char> bytes_;
  std::vector<uint32_t> offsets_;                             // [size + 1] into bytes_
  std::vector<TokenType> types_;                              // [size]
  absl::flat_hash_map<absl::string_view, TokenId> text_ids_;  // views into bytes_
};

}  // namespace octavo
