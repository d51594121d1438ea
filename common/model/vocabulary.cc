#include "common/model/vocabulary.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/model/byte_alphabet.h"
#include "common/model/utf8.h"

namespace octavo {
namespace {

bool IsKnownType(TokenType type) { return type >= TokenType::kNormal && type <= TokenType::kByte; }

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Create(const std::vector<std::string>& tokens,
                                              const std::vector<TokenType>& types) {
  if (tokens.empty() || tokens.size() > kMaxVocabularySize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the vocabulary has ", tokens.size(), " tokens; it must have 1 to ", kMaxVocabularySize));
  }
  if (!types.empty() && types.size() != tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the vocabulary has ", tokens.size(),
                                                   " tokens but ", types.size(), " token types"));
  }
  Vocabulary vocabulary;
  vocabulary.types_ = types;
  vocabulary.types_.resize(tokens.size(), TokenType::kNormal);

  std::vector<TokenId> text_ids;
  vocabulary.offsets_.reserve(tokens.size() + 1);
  vocabulary.offsets_.push_back(0);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenType type = vocabulary.types_[i];
    if (!IsKnownType(type)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " has type ", static_cast<int>(type), "; token types are 1 to 6"));
    }
    // A special token that were half a character would cut text inside one.
    if (const std::optional<size_t> offset = FindInvalidUtf8(tokens[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", i, " is not UTF-8 at byte ", *offset));
    }
    std::optional<std::string> spelled;
    if (type == TokenType::kNormal) spelled = SpelledBytes(tokens[i]);
    const std::string& bytes = spelled ? *spelled : tokens[i];
    if (spelled && !spelled->empty()) text_ids.push_back(static_cast<TokenId>(i));
    if (vocabulary.bytes_.size() + bytes.size() > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError("the tokens' texts are longer than 4 GiB together");
    }
    vocabulary.bytes_.insert(vocabulary.bytes_.end(), bytes.begin(), bytes.end());
    vocabulary.offsets_.push_back(static_cast<uint32_t>(vocabulary.bytes_.size()));
  }
  vocabulary.bytes_.shrink_to_fit();  // the last move of the bytes: views hold from here on
  vocabulary.text_ids_.reserve(text_ids.size());
  for (const TokenId id : text_ids) vocabulary.text_ids_[vocabulary.Bytes(id)] = id;
  return vocabulary;
}

}  // namespace octavo
