#pragma once

// Text to token ids and back, for byte-level BPE models (GPT-2, SmolLM2, Llama 3, Qwen 2). In:
// UTF-8 text. Out: the ids that the Hugging Face `tokenizers` library gives for the same
// vocabulary, merges and pre-tokeniser.
//
// Encoding goes, in this order: cut out special tokens (special_tokens.h), normalise what lies
// between (qwen2 only: nfc.h), cut it into words (pre_tokenizer.h), merge each word's bytes
// (bpe.h).
//
// Thread rule: immutable once made; every method may run on any number of threads at once.
// Invariants: (1) without `parse_special`, no text yields a control token. (2) Encoding takes time
// linear in the text (times the logarithm of the longest word). (3) If the vocabulary has a token
// for each of the 256 bytes and no normalisation applies, the bytes of Encode(text) are text; a
// byte without a token (SmolLM2 has none for U+0004 and 20 more that text hardly holds) is dropped,
// as the `tokenizers` library does.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/model/bpe.h"
#include "common/model/pre_tokenizer.h"
#include "common/model/special_tokens.h"
#include "common/model/tokenizer_spec.h"
#include "common/model/vocabulary.h"

namespace octavo {

// The longest text Encode takes; a request's own limit lies far below.
constexpr size_t kMaxEncodeBytes = size_t{64} << 20;

struct EncodeOptions {
  // Control tokens written in the text ("<|im_end|>") become their ids. Set it for text the server
  // itself has laid out (a chat template), clear it for text a stranger wrote.
  bool parse_special = false;
  // Put BOS first if the model asks for one (TokenizerSpec::add_bos). Clear it where the text
  // already brings its BOS, as chat templates do.
  bool add_bos = false;
};

class Tokenizer {
 public:
  // InvalidArgument, naming the entry, when the spec contradicts itself; Unimplemented, naming what
  // is supported, for another model or pre-tokeniser.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const TokenizerSpec& spec);

  // InvalidArgument with the byte offset if `text` is not UTF-8; ResourceExhausted if it is longer
  // than kMaxEncodeBytes.
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text,
                                              const EncodeOptions& options = {}) const;

  // The bytes of the tokens one after another, control tokens included; not necessarily UTF-8 (see
  // detokenizer.h for text). REQUIRES: IsValid for each.
  std::string DecodeBytes(std::span<const TokenId> tokens) const;

  // The bytes `token` stands for; valid as long as the tokenizer. REQUIRES: IsValid(token).
  absl::string_view TokenBytes(TokenId token) const { return vocabulary_.Bytes(token); }

  bool IsValid(TokenId token) const { return vocabulary_.IsValid(token); }
  // Whether `token` steers the model rather than being text. REQUIRES: IsValid(token).
  bool IsControl(TokenId token) const { return vocabulary_.IsControl(token); }

  // The token written exactly so in the vocabulary and of type control or user-defined.
  std::optional<TokenId> FindSpecial(absl::string_view text) const;

  size_t vocab_size() const { return vocabulary_.size(); }
  std::optional<TokenId> bos_id() const { return bos_id_; }
  std::optional<TokenId> eos_id() const { return eos_id_; }
  std::optional<TokenId> pad_id() const { return pad_id_; }
  // Whether Encode puts BOS first when asked to.
  bool adds_bos() const { return add_bos_; }

  // The tokens that end a generation: EOS, EOT, and the well-known ends of turn that the vocabulary
  // has
  // (<|im_end|>, <|eot_id|>, <|endoftext|>, …). Ascending, without repeats.
  std::span<const TokenId> end_of_generation_ids() const { return end_of_generation_ids_; }
  bool IsEndOfGeneration(TokenId token) const;

 private:
  Tokenizer(Vocabulary vocabulary, SpecialTokens specials, BpeMerges merges,
            std::unique_ptr<PreTokenizer> pre_tokenizer);

  // Appends the ids of `text`, which holds no special token.
  absl::Status EncodeOrdinary(absl::string_view text, PreTokenizer::Scratch& match_scratch,
                              BpeScratch& merge_scratch, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  SpecialTokens specials_;
  BpeMerges merges_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::optional<TokenId> bos_id_, eos_id_, pad_id_;
  bool add_bos_ = false;
  bool add_space_prefix_ = false;
  std::vector<TokenId> end_of_generation_ids_;
};

}  // namespace octavo
