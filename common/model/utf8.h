#pragma once

// UTF-8, read one character at a time (Unicode 15, §3.9, table 3-7: overlong forms, surrogates and
// values above U+10FFFF are no UTF-8). Pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo {

// U+FFFD, what stands for bytes that are no character.
constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

enum class Utf8Form : uint8_t {
  kCharacter,   // a whole character
  kIncomplete,  // the text ends inside what may still become one
  kInvalid,     // no bytes to come can make it one
};

struct Utf8Step {
  Utf8Form form = Utf8Form::kCharacter;
  // Bytes it takes. For kIncomplete and kInvalid: the maximal subpart, what one U+FFFD stands for.
  uint8_t length = 0;
  char32_t code_point = 0;  // of a whole character
};

// What stands at the beginning of `text`. REQUIRES: text is not empty.
Utf8Step ReadUtf8(absl::string_view text);

// Byte offset of the first byte that is not part of a whole character, or nothing if all of `text`
// is UTF-8.
std::optional<size_t> FindInvalidUtf8(absl::string_view text);

// Appends `code_point` as UTF-8. REQUIRES: a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string& out);

}  // namespace octavo
