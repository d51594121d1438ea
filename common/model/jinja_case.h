#pragma once

// Case mappings of single characters, as Python's str methods apply them: Unicode's full mappings
// (SpecialCasing.txt without the language-dependent part), final sigma included.

#include <string>

#include "absl/strings/string_view.h"

namespace octavo::jinja {

void AppendUpper(char32_t code_point, std::string* out);
void AppendTitle(char32_t code_point, std::string* out);
// The lower case of the character at byte `*at` of `text`, moved behind it. The neighbours matter
// to a capital sigma.
void AppendLowerAt(absl::string_view text, size_t* at, std::string* out);

// Unicode's derived property Cased: whether title() goes on in lower case behind this character.
bool IsCased(char32_t code_point);

}  // namespace octavo::jinja
