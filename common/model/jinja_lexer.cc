#include "common/model/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_limits.h"
#include "common/model/jinja_string_literal.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

// Longest first, so that the first match is the right one.
constexpr std::array<absl::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsNameStart(char c) { return c == '_' || absl::ascii_isalpha(static_cast<unsigned char>(c)); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      OCTAVO_RETURN_IF_ERROR(LexText());
    }
    Emit(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  bool StartsWith(absl::string_view text, size_t at) const {
    return source_.compare(at, text.size(), text.data(), text.size()) == 0;
  }

  Token& Emit(TokenKind kind, std::string text = "") {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  // Moves to `end`, counting lines.
  void AdvanceTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + end, '\n'));
    at_ = end;
  }

  size_t SkipSpaceFrom(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!IsSpace(NextCodePoint(source_, &next))) break;
      at = next;
    }
    return at;
  }

  // Emits [at_, end) as text, its right end trimmed as the tag that follows asks for: `sign` is
  // '-', '+' or 0.
  void EmitText(size_t end, char sign, bool is_output) {
    absl::string_view text(source_.data() + at_, end - at_);
    if (sign == '-') {
      text = StripRight(text, nullptr);
    } else if (sign != '+' && !is_output) {
      size_t newline = text.rfind('\n');
      size_t line_start = newline == absl::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && SkipSpaceFrom(at_ + line_start) >= end) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) Emit(TokenKind::kText, std::string(text));
    AdvanceTo(end);
  }

  // The end of a tag whose closing string is `close` ("%}", "#}" or "}}") at `at`, an optional sign
  // before it: where the text behind it goes on; npos when there is no such end.
  size_t TagEnd(size_t at, absl::string_view close) const {
    bool is_output = close == "}}";
    if (StartsWith(close, at)) {
      size_t end = at + close.size();
      if (!is_output && end < source_.size() && source_[end] == '\n') ++end;
      return end;
    }
    if (at >= source_.size()) return std::string::npos;
    if (source_[at] == '-' && StartsWith(close, at + 1)) {
      return SkipSpaceFrom(at + 1 + close.size());
    }
    if (source_[at] == '+' && !is_output && StartsWith(close, at + 1)) {
      return at + 1 + close.size();
    }
    return std::string::npos;
  }

  void FinishTag(size_t end) {
    line_starting_ = end > 0 && source_[end - 1] == '\n';
    AdvanceTo(end);
  }

  // Text up to the next tag, then the tag.
  absl::Status LexText() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        Emit(TokenKind::kText, source_.substr(at_));
        AdvanceTo(source_.size());
        return absl::OkStatus();
      }
      char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    char kind = source_[tag + 1];
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    EmitText(tag, sign, kind == '{');
    size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return LexComment(inside);
    if (kind == '%') {
      size_t raw_end = RawBeginEnd(inside);
      if (raw_end != std::string::npos) return LexRaw(raw_end);
    }
    Emit(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin);
    AdvanceTo(inside);
    return LexTag(kind == '{' ? "}}" : "%}");
  }

  absl::Status LexComment(size_t inside) {
    for (size_t at = inside; at < source_.size(); ++at) {
      size_t end = TagEnd(at, "#}");
      if (end == std::string::npos) continue;
      FinishTag(end);
      return absl::OkStatus();
    }
    return SyntaxError(line_, "the comment that begins here has no end (#})");
  }

  // Behind `raw %}` when that stands at `inside`, else npos. Unlike other tags this one keeps the
  // newline that follows.
  size_t RawBeginEnd(size_t inside) const {
    size_t at = SkipSpaceFrom(inside);
    if (!StartsWith("raw", at)) return std::string::npos;
    at = SkipSpaceFrom(at + 3);
    if (StartsWith("%}", at)) return at + 2;
    if (StartsWith("-%}", at)) return SkipSpaceFrom(at + 3);
    return std::string::npos;
  }

  absl::Status LexRaw(size_t begin) {
    int begin_line = line_;
    FinishTag(begin);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t inside = tag + 2;
      char sign = inside < source_.size() ? source_[inside] : '\0';
      if (sign == '-' || sign == '+')
        ++inside;
      else
        sign = '\0';
      size_t word = SkipSpaceFrom(inside);
      if (!StartsWith("endraw", word)) continue;
      size_t end = TagEnd(SkipSpaceFrom(word + 6), "%}");
      if (end == std::string::npos) continue;
      EmitText(tag, sign, false);
      FinishTag(end);
      return absl::OkStatus();
    }
    return SyntaxError(begin_line, "the raw block that begins here has no end ({% endraw %})");
  }

  // The tokens of one tag, its end included.
  absl::Status LexTag(absl::string_view close) {
    int begin_line = line_;
    std::string open_brackets;
    while (true) {
      AdvanceTo(SkipSpaceFrom(at_));
      if (at_ >= source_.size()) {
        return SyntaxError(begin_line,
                           absl::StrCat("the tag that begins here has no end (", close, ")"));
      }
      size_t end = open_brackets.empty() ? TagEnd(at_, close) : std::string::npos;
      if (end != std::string::npos) {
        Emit(close == "}}" ? TokenKind::kOutputEnd : TokenKind::kBlockEnd);
        FinishTag(end);
        return absl::OkStatus();
      }
      char c = source_[at_];
      if (IsDigit(c)) {
        OCTAVO_RETURN_IF_ERROR(LexNumber());
      } else if (IsNameStart(c)) {
        size_t name_end = at_;
        while (name_end < source_.size() &&
               (IsNameStart(source_[name_end]) || IsDigit(source_[name_end]))) {
          ++name_end;
        }
        if (name_end - at_ > kJinjaMaxNameBytes) {
          return SyntaxError(line_, absl::StrCat("a name has ", name_end - at_, " bytes; at most ",
                                                 kJinjaMaxNameBytes, " are allowed"));
        }
        Emit(TokenKind::kName, source_.substr(at_, name_end - at_));
        at_ = name_end;
      } else if (c == '\'' || c == '"') {
        OCTAVO_RETURN_IF_ERROR(LexString(c));
      } else {
        OCTAVO_RETURN_IF_ERROR(LexOperator(&open_brackets));
      }
    }
  }

  absl::Status LexOperator(std::string* open_brackets) {
    for (absl::string_view op : kOperators) {
      if (!StartsWith(op, at_)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open_brackets->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open_brackets->empty() || open_brackets->back() != op[0]) {
          return SyntaxError(line_, absl::StrCat("unexpected '", op, "'"));
        }
        open_brackets->pop_back();
      }
      Emit(TokenKind::kOperator, std::string(op));
      at_ += op.size();
      return absl::OkStatus();
    }
    size_t next = at_;
    NextCodePoint(source_, &next);
    return SyntaxError(
        line_, absl::StrCat("unexpected character '", source_.substr(at_, next - at_), "'"));
  }

  // Digits with single underscores between them, from `at`: their end.
  template <typename IsDigitOfBase>
  size_t DigitsEnd(size_t at, IsDigitOfBase is_digit) const {
    while (at < source_.size()) {
      if (is_digit(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  std::string WithoutUnderscores(size_t end) const {
    std::string digits = source_.substr(at_, end - at_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    return digits;
  }

  // The end of a float at at_, or npos. After a dot (`list.0.5`) digits are integers.
  size_t FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return std::string::npos;
    size_t end = DigitsEnd(at_, IsDigit);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
      end = DigitsEnd(end + 1, IsDigit);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source_.size() && IsDigit(source_[exponent])) {
        end = DigitsEnd(exponent, IsDigit);
        is_float = true;
      }
    }
    return is_float ? end : std::string::npos;
  }

  absl::Status LexNumber() {
    size_t end = FloatEnd();
    if (end != std::string::npos) {
      std::string digits = WithoutUnderscores(end);
      Emit(TokenKind::kFloat, digits).number = std::strtod(digits.c_str(), nullptr);
      at_ = end;
      return absl::OkStatus();
    }
    int base = 10;
    char second = at_ + 2 < source_.size() ? absl::ascii_tolower(source_[at_ + 1]) : '\0';
    char third = second != '\0' ? source_[at_ + 2] : '\0';
    auto is_hex = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)) != 0; };
    auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    auto is_binary = [](char c) { return c == '0' || c == '1'; };
    auto is_zero = [](char c) { return c == '0'; };
    size_t digits = at_;
    if (source_[at_] == '0' && second == 'x' && (is_hex(third) || third == '_')) {
      base = 16;
      end = DigitsEnd(digits = at_ + 2, is_hex);
    } else if (source_[at_] == '0' && second == 'o' && (is_octal(third) || third == '_')) {
      base = 8;
      end = DigitsEnd(digits = at_ + 2, is_octal);
    } else if (source_[at_] == '0' && second == 'b' && (is_binary(third) || third == '_')) {
      base = 2;
      end = DigitsEnd(digits = at_ + 2, is_binary);
    } else {
      end = source_[at_] == '0' ? DigitsEnd(at_, is_zero) : DigitsEnd(at_, IsDigit);
    }
    return EmitInteger(digits, end, base);
  }

  absl::Status EmitInteger(size_t begin, size_t end, int base) {
    uint64_t value = 0;
    for (size_t i = begin; i < end; ++i) {
      if (source_[i] == '_') continue;
      int digit =
          IsDigit(source_[i]) ? source_[i] - '0' : absl::ascii_tolower(source_[i]) - 'a' + 10;
      if (value > (static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - digit) / base) {
        return SyntaxError(line_, "an integer does not fit into 64 bits");
      }
      value = value * base + digit;
    }
    Emit(TokenKind::kInteger, source_.substr(at_, end - at_)).integer = static_cast<int64_t>(value);
    at_ = end;
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return SyntaxError(line_, "the string that begins here has no end");
    }
    absl::StatusOr<std::string> value =
        UnescapeString(absl::string_view(source_.data() + at_ + 1, end - at_ - 1));
    if (!value.ok()) return SyntaxError(line_, value.status().message());
    Emit(TokenKind::kString, *std::move(value));
    AdvanceTo(end + 1);
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  // Whether the last tag ended with a newline: text behind it begins a line.
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

// \r\n and \r to \n, one newline at the end dropped.
std::string NormalizeNewlines(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace

absl::Status SyntaxError(int line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", message));
}

std::string Token::Describe() const {
  switch (kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", text, "'");
  }
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace octavo::jinja
