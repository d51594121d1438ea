#pragma once

// The escapes of a string literal in a template: Python's, with Jinja's detour through ASCII.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::jinja {

// What stands between the quotes, unescaped: \\ \' \" \a \b \f \n \r \t \v, \ooo, \xhh, \uhhhh,
// \Uhhhhhhhh, backslash newline; an unknown escape stays as it is. A backslash before a non-ASCII
// character stays and the character becomes its escape
// (`\é` is the five characters `\xe9`), because Jinja encodes the literal to ASCII first.
// Errors: InvalidArgument for cut or impossible escapes, surrogates, and \N{...}, which is not
// supported.
absl::StatusOr<std::string> UnescapeString(absl::string_view literal);

}  // namespace octavo::jinja
