#pragma once

// Tokens to text, one at a time, for a stream. In: ids as they are sampled. Out: text that is safe
// to show. A token may end in the middle of a UTF-8 character; its bytes wait here until the
// character is whole. Bytes that can never become a character turn into U+FFFD, one per maximal
// subpart (Unicode 15, §3.9, as Python's errors="replace" and WHATWG decoders do).
//
// Thread-compatible: one per stream; the tokenizer is borrowed and shared.
// Invariants: (1) what Append and Finish return is valid UTF-8. (2) Put together, it is the
// replacement decoding of the shown tokens' bytes put together, however they are spread over calls.

#include <string>

#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/model/tokenizer.h"

namespace octavo {

struct DetokenizerOptions {
  bool show_control = false;  // show control tokens as they are written, instead of hiding them
};

class Detokenizer {
 public:
  // `tokenizer` must outlive this.
  explicit Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options = {});

  // The text that `token` completes; empty while a character is incomplete, and for a hidden token.
  // REQUIRES: tokenizer->IsValid(token).
  std::string Append(TokenId token);

  // The same for raw bytes.
  std::string AppendBytes(absl::string_view bytes);

  // Ends the text: U+FFFD if bytes of an incomplete character are left, else empty. The detokenizer
  // is then as new.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  std::string pending_;  // the beginning of a character, 0 to 3 bytes
};

}  // namespace octavo
