#pragma once

// Vocabularies small enough to work out by hand: the 256 bytes (ids 0 to 255, each its byte's
// value), one token per merge in order (ids from 256), then the special tokens.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/model/byte_alphabet.h"
#include "common/model/tokenizer_spec.h"

namespace octavo {

// `merges` are pairs of byte strings, each side a byte or an earlier merge's result.
inline TokenizerSpec SmallSpec(const std::vector<std::pair<std::string, std::string>>& merges,
                               const std::vector<std::pair<std::string, TokenType>>& specials = {},
                               const std::string& pre_tokenizer = "gpt2") {
  TokenizerSpec spec{.pre_tokenizer = pre_tokenizer};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(SpellBytes(std::string(1, static_cast<char>(byte))));
  }
  for (const auto& [left, right] : merges) {
    spec.tokens.push_back(SpellBytes(left + right));
    spec.merges.push_back(SpellBytes(left) + " " + SpellBytes(right));
  }
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  for (const auto& [text, type] : specials) {
    spec.tokens.push_back(text);
    spec.types.push_back(type);
  }
  return spec;
}

}  // namespace octavo
