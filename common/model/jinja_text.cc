#include "common/model/jinja_text.h"

#include <algorithm>

#include "common/model/jinja_case.h"
#include "utf8proc.h"

namespace octavo::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The start of the character that ends at byte `end`. REQUIRES: end > 0.
size_t PreviousStart(absl::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && IsContinuation(text[start])) --start;
  return start;
}

bool IsSpaceAt(absl::string_view text, size_t at) { return IsSpace(NextCodePoint(text, &at)); }

bool IsStripped(absl::string_view text, size_t start, size_t end, const std::string* characters) {
  if (characters == nullptr) return IsSpaceAt(text, start);
  absl::string_view character = text.substr(start, end - start);
  return absl::string_view(*characters).find(character) != absl::string_view::npos;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool IsValidUtf8(absl::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code_point;
    utf8proc_ssize_t length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

int64_t TextLength(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); });
}

size_t ByteOffset(absl::string_view text, int64_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    ++at;
    while (at < text.size() && IsContinuation(text[at])) ++at;
    --index;
  }
  return at;
}

char32_t NextCodePoint(absl::string_view text, size_t* at) {
  auto first = static_cast<unsigned char>(text[*at]);
  int extra = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  char32_t code_point = extra == 0 ? first : first & (0x3f >> extra);
  for (++*at; extra > 0 && *at < text.size(); --extra, ++*at) {
    code_point = code_point << 6 | (static_cast<unsigned char>(text[*at]) & 0x3f);
  }
  return code_point;
}

void AppendCodePoint(char32_t code_point, std::string* out) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::vector<absl::string_view> SplitCharacters(absl::string_view text) {
  std::vector<absl::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    NextCodePoint(text, &at);
    characters.push_back(text.substr(start, at - start));
  }
  return characters;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

absl::string_view StripLeft(absl::string_view text, const std::string* characters) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    NextCodePoint(text, &next);
    if (!IsStripped(text, at, next, characters)) break;
    at = next;
  }
  return text.substr(at);
}

absl::string_view StripRight(absl::string_view text, const std::string* characters) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = PreviousStart(text, end);
    if (!IsStripped(text, start, end, characters)) break;
    end = start;
  }
  return text.substr(0, end);
}

std::string Upper(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) AppendUpper(NextCodePoint(text, &at), &out);
  return out;
}

std::string Lower(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) AppendLowerAt(text, &at, &out);
  return out;
}

std::string Capitalize(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (at == 0) {
      AppendTitle(NextCodePoint(text, &at), &out);
    } else {
      AppendLowerAt(text, &at, &out);
    }
  }
  return out;
}

std::string Title(absl::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t at = 0; at < text.size();) {
    size_t next = at;
    char32_t code_point = NextCodePoint(text, &next);
    if (after_cased) {
      AppendLowerAt(text, &at, &out);
    } else {
      AppendTitle(code_point, &out);
      at = next;
    }
    after_cased = IsCased(code_point);
  }
  return out;
}

std::vector<absl::string_view> SplitLines(absl::string_view text, bool keep_ends) {
  std::vector<absl::string_view> lines;
  size_t line_start = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    char32_t c = NextCodePoint(text, &at);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(line_start, (keep_ends ? at : end) - line_start));
    line_start = at;
  }
  if (line_start < text.size()) lines.push_back(text.substr(line_start));
  return lines;
}

std::vector<absl::string_view> SplitAtSpace(absl::string_view text, int64_t limit) {
  std::vector<absl::string_view> parts;
  text = StripLeft(text, nullptr);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t at = 0;
    while (at < text.size() && !IsSpaceAt(text, at)) NextCodePoint(text, &at);
    parts.push_back(text.substr(0, at));
    text = StripLeft(text.substr(at), nullptr);
  }
  return parts;
}

std::vector<absl::string_view> SplitAtSpaceFromRight(absl::string_view text, int64_t limit) {
  std::vector<absl::string_view> parts;
  text = StripRight(text, nullptr);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0 && !IsSpaceAt(text, PreviousStart(text, begin))) {
      begin = PreviousStart(text, begin);
    }
    parts.push_back(text.substr(begin));
    text = StripRight(text.substr(0, begin), nullptr);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<absl::string_view> SplitAt(absl::string_view text, absl::string_view separator,
                                       int64_t limit) {
  std::vector<absl::string_view> parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t found = text.find(separator, begin);
    if (found == absl::string_view::npos) break;
    parts.push_back(text.substr(begin, found - begin));
    begin = found + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<absl::string_view> SplitAtFromRight(absl::string_view text, absl::string_view separator,
                                                int64_t limit) {
  std::vector<absl::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t found = text.rfind(separator);
    if (found == absl::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::string EscapeHtml(absl::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace octavo::jinja
