#pragma once

// Cuts text into the words within which byte pairs are merged. In: valid UTF-8. Out: consecutive
// pieces that put together are the text. Each model was trained with one of a few regular
// expressions; they need look-ahead and Unicode classes, so PCRE2 runs them, compiled to machine
// code where the system allows it.
//
// Thread rule: immutable once made; each caller brings its own Scratch.
// Letters, numbers and spaces are those of PCRE2's Unicode version (14 in Debian 12): characters
// assigned later count as symbols, and a word that holds one may be cut elsewhere than a newer
// library would.

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo {

struct PreTokenizerRules {
  const char* name = "";         // GGUF's `tokenizer.ggml.pre`
  const char* pattern = "";      // of one word, as published; matches everywhere
  bool normalize_nfc = false;    // text is brought to NFC first
  bool ignore_merges = false;    // a word that is a token is taken whole, whatever its merges make
  bool adds_bos_unsaid = false;  // a model file that does not say whether BOS comes first means yes
};

// The rules of that name (gpt2, smollm, llama-bpe, qwen2, and the names that mean the same), or
// Unimplemented with the known names.
absl::StatusOr<const PreTokenizerRules*> FindPreTokenizerRules(absl::string_view name);

class PreTokenizer {
 public:
  // What a match needs to write to; one per thread of work.
  class Scratch {
   public:
    ~Scratch();
    Scratch(Scratch&&) noexcept;

   private:
    friend class PreTokenizer;
    struct Data;
    explicit Scratch(std::unique_ptr<Data> data);
    std::unique_ptr<Data> data_;
  };

  // `rules` must outlive this; those of FindPreTokenizerRules live for ever.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(const PreTokenizerRules* rules);
  ~PreTokenizer();

  const PreTokenizerRules& rules() const { return *rules_; }
  // What PCRE2 compiled: the rules' pattern with its white space written out.
  const std::string& pattern() const { return pattern_; }
  Scratch MakeScratch() const;

  // Calls `word` for each piece of `text`, in order. Internal if the regular expression engine
  // gives up. REQUIRES: text is valid UTF-8.
  absl::Status Split(absl::string_view text, Scratch& scratch,
                     absl::FunctionRef<void(absl::string_view)> word) const;

 private:
  struct Code;
  PreTokenizer(const PreTokenizerRules* rules, std::string pattern, std::unique_ptr<Code> code);

  const PreTokenizerRules* rules_;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace octavo
