#pragma once

// What a byte-level BPE tokenizer is made of, as plain values: the vocabulary, the merges, and the
// few flags a model file carries about them. It knows no file format; tokenizer_from_gguf.h fills
// it from a GGUF file, and tests fill it by hand. Tokenizer::Create checks it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"

namespace octavo {

// What a vocabulary entry is for; the values are those of GGUF's `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t {
  kNormal = 1,   // text: bytes written in the GPT-2 byte alphabet (byte_alphabet.h)
  kUnknown = 2,  // never produced by encoding
  kControl =
      3,  // steers the model (<|im_end|>); never produced from text unless specials are parsed
  kUserDefined = 4,  // text that is always one token, matched before everything else
  kUnused = 5,       // a placeholder; never produced by encoding
  kByte = 6,         // a byte of a SentencePiece vocabulary; not used by byte-level BPE
};

struct TokenizerSpec {
  // "gpt2" is byte-level BPE (GGUF's name for it); nothing else is supported.
  std::string model = "gpt2";
  // How text is cut into words before merging: gpt2, smollm, llama-bpe or qwen2 (pre_tokenizer.h).
  std::string pre_tokenizer;
  // The vocabulary; a token's id is its index.
  std::vector<std::string> tokens;
  // One per token, or empty: all normal.
  std::vector<TokenType> types;
  // "left right", the most urgent first; both sides and their concatenation are normal tokens.
  std::vector<std::string> merges;

  std::optional<TokenId> bos_id;  // begins a text
  std::optional<TokenId> eos_id;  // ends a text
  std::optional<TokenId> eot_id;  // ends a turn
  std::optional<TokenId> pad_id;

  // The model expects a BOS before every prompt that brings none of its own.
  bool add_bos = false;
  // GPT-2's add_prefix_space: text that does not begin with white space is encoded as if it began
  // with one space, and so is text after a special token.
  bool add_space_prefix = false;
};

}  // namespace octavo
