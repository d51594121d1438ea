#include "common/model/tokenizer_from_gguf.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/pre_tokenizer.h"
#include "common/status.h"

namespace octavo {
namespace {

constexpr char kPrefix[] = "tokenizer.ggml.";

std::string Key(absl::string_view name) { return absl::StrCat(kPrefix, name); }

absl::StatusOr<std::vector<std::string>> ReadStrings(const GgufFile& file, absl::string_view name) {
  OCTAVO_ASSIGN_OR_RETURN(const GgufStringArray views, file.GetStrings(Key(name)));
  std::vector<std::string> strings;
  strings.reserve(views.size());
  for (const absl::string_view view : views) strings.emplace_back(view.data(), view.size());
  return strings;
}

absl::StatusOr<std::vector<TokenType>> ReadTypes(const GgufFile& file) {
  std::vector<TokenType> types;
  if (!file.Has(Key("token_type"))) return types;
  OCTAVO_ASSIGN_OR_RETURN(const GgufArray<int32_t> values, file.GetI32s(Key("token_type")));
  types.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const int32_t value = values[i];
    if (value < static_cast<int32_t>(TokenType::kNormal) ||
        value > static_cast<int32_t>(TokenType::kByte)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Key("token_type"), "[", i, "] is ", value, "; token types are 1 to 6"));
    }
    types.push_back(static_cast<TokenType>(value));
  }
  return types;
}

absl::StatusOr<std::optional<TokenId>> ReadId(const GgufFile& file, absl::string_view name) {
  if (!file.Has(Key(name))) return std::optional<TokenId>();
  OCTAVO_ASSIGN_OR_RETURN(const uint64_t value, file.GetU64(Key(name)));
  if (value > static_cast<uint64_t>(std::numeric_limits<TokenId>::max())) {
    return absl::InvalidArgumentError(absl::StrCat(Key(name), " is ", value, "; ids are 0 to ",
                                                   std::numeric_limits<TokenId>::max()));
  }
  return std::optional<TokenId>(static_cast<TokenId>(value));
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file) {
  TokenizerSpec spec;
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view model, file.GetString(Key("model")));
  spec.model = std::string(model);
  if (spec.model != "gpt2") return spec;  // other models have other keys; Create refuses by name
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view pre, file.GetString(Key("pre")));
  spec.pre_tokenizer = std::string(pre);
  OCTAVO_ASSIGN_OR_RETURN(spec.tokens, ReadStrings(file, "tokens"));
  OCTAVO_ASSIGN_OR_RETURN(spec.merges, ReadStrings(file, "merges"));
  OCTAVO_ASSIGN_OR_RETURN(spec.types, ReadTypes(file));
  OCTAVO_ASSIGN_OR_RETURN(spec.bos_id, ReadId(file, "bos_token_id"));
  OCTAVO_ASSIGN_OR_RETURN(spec.eos_id, ReadId(file, "eos_token_id"));
  OCTAVO_ASSIGN_OR_RETURN(spec.eot_id, ReadId(file, "eot_token_id"));
  OCTAVO_ASSIGN_OR_RETURN(spec.pad_id, ReadId(file, "padding_token_id"));
  // Llama 3's files say nothing about their BOS and mean that it comes first.
  const auto rules = FindPreTokenizerRules(spec.pre_tokenizer);
  const bool add_bos_unsaid = rules.ok() && (*rules)->adds_bos_unsaid && spec.bos_id.has_value();
  OCTAVO_ASSIGN_OR_RETURN(spec.add_bos, file.GetBoolOr(Key("add_bos_token"), add_bos_unsaid));
  OCTAVO_ASSIGN_OR_RETURN(spec.add_space_prefix, file.GetBoolOr(Key("add_space_prefix"), false));
  return spec;
}

}  // namespace octavo
