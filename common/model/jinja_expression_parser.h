#pragma once

// The expressions of a template: Jinja's operator precedence, from `a if b else c` down to
// literals.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_ast.h"
#include "common/model/jinja_lexer.h"

namespace octavo::jinja {

// A cursor over tokens with the grammar's expressions as methods. The statement parser builds on
// it.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool SkipName(absl::string_view name);
  bool SkipOperator(absl::string_view op);
  absl::Status ExpectOperator(absl::string_view op);
  absl::Status ExpectKind(TokenKind kind, absl::string_view what);
  absl::StatusOr<std::string> ExpectName(absl::string_view what);
  absl::Status Unexpected(absl::string_view wanted) const;

  // One expression; without conditionals where `if` means something else.
  absl::StatusOr<ExpressionPointer> ParseExpression(bool with_conditional = true);
  // Expressions with commas between them make a tuple. Ends at the tag's end, a `)`, or `end_name`.
  absl::StatusOr<ExpressionPointer> ParseTuple(bool with_conditional = true,
                                               absl::string_view end_name = "",
                                               bool is_parenthesized = false);
  // `| filter | filter ...` upon `operand`, which is null at the head of a block's chain; with
  // `is_inline` the first bar is left out. Null when there is no filter.
  absl::StatusOr<ExpressionPointer> ParseFilters(ExpressionPointer operand, bool is_inline = false);
  // A name, a namespace's attribute where allowed, or a tuple of them. Ends at `in` or `=`.
  absl::StatusOr<Target> ParseTarget(bool with_namespace, absl::string_view end_name);
  absl::StatusOr<std::string> ParseTargetName();
  absl::StatusOr<Signature> ParseSignature();

  // Names that macros bind for themselves and must know to be used: caller, varargs, kwargs.
  std::vector<Signature*>& open_signatures() { return open_signatures_; }
  // Above zero inside an `if`: filters and tests that do not exist are an error only when reached,
  // as in Jinja.
  int& conditional_depth() { return conditional_depth_; }
  // The first filter or test outside any condition that does not exist.
  absl::Status UnknownName() const {
    return unknown_names_.empty() ? absl::OkStatus() : unknown_names_.front();
  }
  int& depth() { return depth_; }

  // Fails when the tree is too deep at the current token.
  absl::Status CheckDepth(int depth) const;

 private:
  friend class ParseDepth;

  ExpressionPointer New(ExpressionKind kind, int line) const;
  // Sets the node's depth from its operands and fails when it is too deep.
  absl::StatusOr<ExpressionPointer> Finish(ExpressionPointer node) const;

  absl::StatusOr<ExpressionPointer> ParseConditional();
  absl::StatusOr<ExpressionPointer> ParseOr();
  absl::StatusOr<ExpressionPointer> ParseAnd();
  absl::StatusOr<ExpressionPointer> ParseNot();
  absl::StatusOr<ExpressionPointer> ParseCompare();
  absl::StatusOr<ExpressionPointer> ParseSum();
  absl::StatusOr<ExpressionPointer> ParseConcatenation();
  absl::StatusOr<ExpressionPointer> ParseProduct();
  absl::StatusOr<ExpressionPointer> ParsePower();
  absl::StatusOr<ExpressionPointer> ParseUnary(bool with_filter);
  absl::StatusOr<ExpressionPointer> ParsePrimary();
  absl::StatusOr<ExpressionPointer> ParseName();
  absl::StatusOr<ExpressionPointer> ParseList();
  absl::StatusOr<ExpressionPointer> ParseDict();
  absl::StatusOr<ExpressionPointer> ParsePostfix(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParsePostfixFilters(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseDot(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseSubscript(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseTest(ExpressionPointer node);
  absl::StatusOr<ExpressionPointer> ParseCall(ExpressionPointer node);
  absl::StatusOr<CallArguments> ParseArguments();
  absl::Status ParseArgument(CallArguments* arguments);
  void NoteUnknown(absl::string_view kind, const Expression& node);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int conditional_depth_ = 0;
  // Errors kept back until the expression turns out not to be a branch of `a if b else c`.
  std::vector<absl::Status> unknown_names_;
  std::vector<Signature*> open_signatures_;
};

// Counts one level of the parser's own recursion while it lives.
class ParseDepth {
 public:
  explicit ParseDepth(ExpressionParser& parser) : depth_(parser.depth()) { ++depth_; }
  ~ParseDepth() { --depth_; }
  ParseDepth(const ParseDepth&) = delete;
  ParseDepth& operator=(const ParseDepth&) = delete;

 private:
  int& depth_;
};

}  // namespace octavo::jinja
