#pragma once

// Template source to tokens, as Jinja's lexer with trim_blocks and lstrip_blocks: text between tags
// comes out with its whitespace control already applied, comments and raw blocks are resolved, and
// what is inside `{{ }}` and `{% %}` becomes names, numbers, strings and operators.
//
// Rules: the newline right after a `%}` or `#}` is dropped; blanks between the start of a line and
// a `{%` or `{#` are dropped; `-` beside a tag drops all whitespace on that side, `+` keeps it; one
// newline at the very end of the source is dropped; \r\n and
// \r count as \n. Inside brackets a `}}` or `%}` does not end the tag.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::jinja {

enum class TokenKind : uint8_t {
  kText,
  kOutputBegin,  // {{
  kOutputEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // text holds the unescaped value
  kInteger,
  kFloat,
  kOperator,  // text holds the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;
  int64_t integer = 0;
  double number = 0;

  bool IsName(absl::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(absl::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  // For messages: the token as its author knows it.
  std::string Describe() const;
};

// The last token is kEnd. Errors: InvalidArgument "line N: ...".
// REQUIRES: source is valid UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

// "line N: message", the form of every syntax error.
absl::Status SyntaxError(int line, absl::string_view message);

}  // namespace octavo::jinja
