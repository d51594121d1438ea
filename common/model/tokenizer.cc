#include "common/model/tokenizer.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/nfc.h"
#include "common/model/utf8.h"
#include "common/status.h"

namespace octavo {
namespace {

// Ends of text and of turn by the names published models give them; a model file names one or two
// of those its model was trained to write.
constexpr std::array<absl::string_view, 9> kEndNames = {
    "<|im_end|>", "<|eot_id|>",    "<|eom_id|>", "<|end_of_text|>",       "<|endoftext|>",
    "<|end|>",    "<end_of_turn>", "<|eot|>",    "<｜end▁of▁sentence｜>",
};

absl::Status CheckId(const Vocabulary& vocabulary, absl::string_view name,
                     std::optional<TokenId> id) {
  if (!id || vocabulary.IsValid(*id)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ", name, " token is ", *id, "; the vocabulary has ids 0 to ", vocabulary.size() - 1));
}

std::vector<TokenId> EndOfGenerationIds(const TokenizerSpec& spec, const SpecialTokens& specials) {
  std::vector<TokenId> ids;
  for (const std::optional<TokenId>& id : {spec.eos_id, spec.eot_id}) {
    if (id) ids.push_back(*id);
  }
  for (const absl::string_view name : kEndNames) {
    if (const std::optional<TokenId> id = specials.Find(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, SpecialTokens specials, BpeMerges merges,
                     std::unique_ptr<PreTokenizer> pre_tokenizer)
    : vocabulary_(std::move(vocabulary)),
      specials_(std::move(specials)),
      merges_(std::move(merges)),
      pre_tokenizer_(std::move(pre_tokenizer)) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") {
    return absl::UnimplementedError(absl::StrCat("tokenizer model \"", spec.model,
                                                 "\" is not supported; supported is gpt2 "
                                                 "(byte-level BPE)"));
  }
  OCTAVO_ASSIGN_OR_RETURN(const PreTokenizerRules* rules,
                          FindPreTokenizerRules(spec.pre_tokenizer));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> pre_tokenizer, PreTokenizer::Create(rules));
  OCTAVO_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(spec.tokens, spec.types));
  OCTAVO_RETURN_IF_ERROR(CheckId(vocabulary, "BOS", spec.bos_id));
  OCTAVO_RETURN_IF_ERROR(CheckId(vocabulary, "EOS", spec.eos_id));
  OCTAVO_RETURN_IF_ERROR(CheckId(vocabulary, "EOT", spec.eot_id));
  OCTAVO_RETURN_IF_ERROR(CheckId(vocabulary, "padding", spec.pad_id));
  if (spec.add_bos && !spec.bos_id) {
    return absl::InvalidArgumentError("the model asks for a BOS token but names none");
  }
  OCTAVO_ASSIGN_OR_RETURN(BpeMerges merges, BpeMerges::Create(vocabulary, spec.merges));
  SpecialTokens specials(vocabulary);
  auto tokenizer = std::unique_ptr<Tokenizer>(new Tokenizer(
      std::move(vocabulary), std::move(specials), std::move(merges), std::move(pre_tokenizer)));
  tokenizer->bos_id_ = spec.bos_id;
  tokenizer->eos_id_ = spec.eos_id;
  tokenizer->pad_id_ = spec.pad_id;
  tokenizer->add_bos_ = spec.add_bos;
  tokenizer->add_space_prefix_ = spec.add_space_prefix;
  tokenizer->end_of_generation_ids_ = EndOfGenerationIds(spec, tokenizer->specials_);
  return tokenizer;
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(absl::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kMaxEncodeBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the text has ", text.size(), " bytes; the limit is ", kMaxEncodeBytes));
  }
  if (const std::optional<size_t> offset = FindInvalidUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text is not UTF-8: byte ", *offset, " is 0x",
                     absl::Hex(static_cast<unsigned char>(text[*offset]), absl::kZeroPad2)));
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 1);
  if (options.add_bos && add_bos_) ids.push_back(*bos_id_);
  PreTokenizer::Scratch match_scratch = pre_tokenizer_->MakeScratch();
  BpeScratch merge_scratch;
  size_t begin = 0;
  while (begin < text.size()) {
    const auto special = specials_.FindNext(text, begin, options.parse_special);
    const size_t end = special ? special->offset : text.size();
    OCTAVO_RETURN_IF_ERROR(
        EncodeOrdinary(text.substr(begin, end - begin), match_scratch, merge_scratch, ids));
    if (special) ids.push_back(special->id);
    begin = special ? end + special->length : end;
  }
  return ids;
}

absl::Status Tokenizer::EncodeOrdinary(absl::string_view text, PreTokenizer::Scratch& match_scratch,
                                       BpeScratch& merge_scratch, std::vector<TokenId>& out) const {
  if (text.empty()) return absl::OkStatus();
  const PreTokenizerRules& rules = pre_tokenizer_->rules();
  std::string changed;
  if (rules.normalize_nfc && !IsTriviallyNfc(text)) {
    changed = ToNfc(text);
    text = changed;
  }
  if (add_space_prefix_ && text[0] != ' ') {
    changed = absl::StrCat(" ", text);
    text = changed;
  }
  return pre_tokenizer_->Split(text, match_scratch, [&](absl::string_view word) {
    // Most words are tokens already.
    const std::optional<TokenId> whole = vocabulary_.FindText(word);
    if (whole && (rules.ignore_merges || merges_.IsWhole(*whole))) {
      out.push_back(*whole);
    } else {
      merges_.Encode(word, merge_scratch, out);
    }
  });
}

std::string Tokenizer::DecodeBytes(std::span<const TokenId> tokens) const {
  std::string bytes;
  for (const TokenId token : tokens) {
    CHECK(IsValid(token)) << "token " << token << " of " << vocab_size();
    const absl::string_view part = TokenBytes(token);
    bytes.append(part.data(), part.size());
  }
  return bytes;
}

std::optional<TokenId> Tokenizer::FindSpecial(absl::string_view text) const {
  return specials_.Find(text);
}

bool Tokenizer::IsEndOfGeneration(TokenId token) const {
  return std::binary_search(end_of_generation_ids_.begin(), end_of_generation_ids_.end(), token);
}

}  // namespace octavo
