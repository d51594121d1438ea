#pragma once

// Text as Python's str sees it: a row of code points. All strings are valid UTF-8; offsets in these
// functions are bytes where a parameter says so and code points otherwise.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace octavo::jinja {

bool IsValidUtf8(absl::string_view text);
// Code points of `text`.
int64_t TextLength(absl::string_view text);
// The byte at which code point `index` begins, text.size() if there are fewer.
size_t ByteOffset(absl::string_view text, int64_t index);
// The code point that begins at byte `*at`; moves `*at` behind it. REQUIRES: *at < text.size(), at
// a code point's start.
char32_t NextCodePoint(absl::string_view text, size_t* at);
void AppendCodePoint(char32_t code_point, std::string* out);
// One string per code point.
std::vector<absl::string_view> SplitCharacters(absl::string_view text);

// str.isspace() of one character: the whitespace that strip(), split() and the template's `-`
// remove.
bool IsSpace(char32_t code_point);
// str.isprintable() of one character: what repr() shows as it is.
bool IsPrintable(char32_t code_point);

// Without the leading (trailing) characters that are in `characters`; whitespace when that is null.
absl::string_view StripLeft(absl::string_view text, const std::string* characters);
absl::string_view StripRight(absl::string_view text, const std::string* characters);

// str.upper(), lower(), capitalize(), title(): full case mappings, one character may become
// several.
std::string Upper(absl::string_view text);
std::string Lower(absl::string_view text);
std::string Capitalize(absl::string_view text);
std::string Title(absl::string_view text);

// str.splitlines(): at \n, \r, \r\n, \v, \f, \x1c-\x1e, \x85, U+2028, U+2029; no empty last line.
std::vector<absl::string_view> SplitLines(absl::string_view text, bool keep_ends);
// str.split() and rsplit() at runs of whitespace, at most `limit` cuts (all when negative).
std::vector<absl::string_view> SplitAtSpace(absl::string_view text, int64_t limit);
std::vector<absl::string_view> SplitAtSpaceFromRight(absl::string_view text, int64_t limit);
// str.split(separator, limit) and rsplit. REQUIRES: separator is not empty.
std::vector<absl::string_view> SplitAt(absl::string_view text, absl::string_view separator,
                                       int64_t limit);
std::vector<absl::string_view> SplitAtFromRight(absl::string_view text, absl::string_view separator,
                                                int64_t limit);

// Markup's escaping: & < > ' ".
std::string EscapeHtml(absl::string_view text);

}  // namespace octavo::jinja
