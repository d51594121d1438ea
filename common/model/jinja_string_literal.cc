#include "common/model/jinja_string_literal.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

int HexDigit(char c) {
  if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return -1;
  return absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0'
                                                            : absl::ascii_tolower(c) - 'a' + 10;
}

// `count` hexadecimal digits at `*at`, moved behind them.
absl::StatusOr<char32_t> ReadHex(absl::string_view literal, size_t* at, int count) {
  uint32_t code_point = 0;
  for (int i = 0; i < count; ++i, ++*at) {
    int digit = *at < literal.size() ? HexDigit(literal[*at]) : -1;
    if (digit < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a string escape needs ", count, " hexadecimal digits"));
    }
    code_point = code_point * 16 + static_cast<uint32_t>(digit);
  }
  if (code_point > 0x10ffff) {
    return absl::InvalidArgumentError("a string escape names no Unicode character");
  }
  if (code_point >= 0xd800 && code_point <= 0xdfff) {
    return absl::InvalidArgumentError("a string escape names a surrogate, which is not supported");
  }
  return static_cast<char32_t>(code_point);
}

// Up to three octal digits at `*at`.
char32_t ReadOctal(absl::string_view literal, size_t* at) {
  char32_t code_point = 0;
  for (int i = 0; i < 3 && *at < literal.size(); ++i, ++*at) {
    char c = literal[*at];
    if (c < '0' || c > '7') break;
    code_point = code_point * 8 + static_cast<char32_t>(c - '0');
  }
  return code_point;
}

// Python's "backslashreplace" of one character.
std::string EscapedForm(char32_t code_point) {
  if (code_point <= 0xff) return absl::StrFormat("x%02x", static_cast<uint32_t>(code_point));
  if (code_point <= 0xffff) return absl::StrFormat("u%04x", static_cast<uint32_t>(code_point));
  return absl::StrFormat("U%08x", static_cast<uint32_t>(code_point));
}

// The character a one-letter escape stands for, or 0.
char SimpleEscape(char c) {
  switch (c) {
    case '\\':
    case '\'':
    case '"':
      return c;
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    default:
      return '\0';
  }
}

// The escape whose letter stands at `*at`; moves behind it.
absl::Status AppendEscape(absl::string_view literal, size_t* at, std::string* out) {
  char c = literal[*at];
  if (char simple = SimpleEscape(c); simple != '\0') {
    out->push_back(simple);
    ++*at;
  } else if (c == '\n') {
    ++*at;
  } else if (c >= '0' && c <= '7') {
    AppendCodePoint(ReadOctal(literal, at), out);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    ++*at;
    OCTAVO_ASSIGN_OR_RETURN(char32_t code_point, ReadHex(literal, at,
                                                         c == 'x'   ? 2
                                                         : c == 'u' ? 4
                                                                    : 8));
    AppendCodePoint(code_point, out);
  } else if (c == 'N') {
    return absl::InvalidArgumentError("the string escape \\N{...} is not supported");
  } else {
    out->push_back('\\');
    char32_t code_point = NextCodePoint(literal, at);
    if (code_point < 0x80) {
      out->push_back(static_cast<char>(code_point));
    } else {
      absl::StrAppend(out, EscapedForm(code_point));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> UnescapeString(absl::string_view literal) {
  std::string out;
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\') {
      out.push_back(literal[at++]);
      continue;
    }
    if (++at >= literal.size()) return absl::InvalidArgumentError("a string ends within an escape");
    OCTAVO_RETURN_IF_ERROR(AppendEscape(literal, &at, &out));
  }
  return out;
}

}  // namespace octavo::jinja
