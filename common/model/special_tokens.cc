#include "common/model/special_tokens.h"

namespace octavo {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : entries_(1) {
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = vocabulary.Type(id);
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    const absl::string_view text = vocabulary.Bytes(id);
    if (text.empty()) continue;
    const uint32_t node = trie_.Insert(text);
    entries_.resize(trie_.node_count());
    entries_[node] = {.id = id, .is_control = type == TokenType::kControl};
    can_begin_[static_cast<unsigned char>(text[0])] = true;
  }
}

std::optional<SpecialTokens::Match> SpecialTokens::FindNext(absl::string_view text, size_t from,
                                                            bool with_control) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!can_begin_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < text.size(); ++end) {
      node = trie_.Child(node, static_cast<unsigned char>(text[end]));
      if (node == ByteTrie::kNone) break;
      const Entry& entry = entries_[node];
      if (entry.id < 0 || (entry.is_control && !with_control)) continue;
      longest = {.offset = begin, .length = end + 1 - begin, .id = entry.id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

std::optional<TokenId> SpecialTokens::Find(absl::string_view text) const {
  const std::optional<Match> match = FindNext(text, 0, /*with_control=*/true);
  if (!match || match->length != text.size()) return std::nullopt;
  return match->id;
}

}  // namespace octavo
