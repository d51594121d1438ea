#include "common/model/jinja_expression_parser.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/jinja_limits.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

std::optional<Comparison> ComparisonOf(const Token& token) {
  if (token.IsOperator("==")) return Comparison::kEqual;
  if (token.IsOperator("!=")) return Comparison::kNotEqual;
  if (token.IsOperator("<")) return Comparison::kLess;
  if (token.IsOperator("<=")) return Comparison::kLessOrEqual;
  if (token.IsOperator(">")) return Comparison::kGreater;
  if (token.IsOperator(">=")) return Comparison::kGreaterOrEqual;
  return std::nullopt;
}

std::optional<BinaryOperator> ProductOf(const Token& token) {
  if (token.IsOperator("*")) return BinaryOperator::kMultiply;
  if (token.IsOperator("/")) return BinaryOperator::kDivide;
  if (token.IsOperator("//")) return BinaryOperator::kFloorDivide;
  if (token.IsOperator("%")) return BinaryOperator::kModulo;
  return std::nullopt;
}

}  // namespace

ExpressionPointer ExpressionParser::New(ExpressionKind kind, int line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

absl::Status ExpressionParser::CheckDepth(int depth) const {
  if (depth <= kJinjaMaxTreeDepth) return absl::OkStatus();
  return SyntaxError(current().line, absl::StrCat("the template is nested deeper than ",
                                                  kJinjaMaxTreeDepth, " levels"));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::Finish(ExpressionPointer node) const {
  int deepest = 0;
  auto visit = [&deepest](const ExpressionPointer& child) {
    if (child != nullptr) deepest = std::max(deepest, child->depth);
  };
  for (const ExpressionPointer& operand : node->operands) visit(operand);
  for (const ExpressionPointer& argument : node->arguments.positional) visit(argument);
  for (const auto& [name, argument] : node->arguments.named) visit(argument);
  visit(node->arguments.star);
  visit(node->arguments.double_star);
  node->depth = deepest + 1;
  OCTAVO_RETURN_IF_ERROR(CheckDepth(node->depth));
  return node;
}

absl::Status ExpressionParser::Unexpected(absl::string_view wanted) const {
  return SyntaxError(current().line,
                     absl::StrCat("expected ", wanted, ", found ", current().Describe()));
}

bool ExpressionParser::SkipName(absl::string_view name) {
  if (!current().IsName(name)) return false;
  Advance();
  return true;
}

bool ExpressionParser::SkipOperator(absl::string_view op) {
  if (!current().IsOperator(op)) return false;
  Advance();
  return true;
}

absl::Status ExpressionParser::ExpectOperator(absl::string_view op) {
  if (SkipOperator(op)) return absl::OkStatus();
  return Unexpected(absl::StrCat("'", op, "'"));
}

absl::Status ExpressionParser::ExpectKind(TokenKind kind, absl::string_view what) {
  if (current().kind != kind) return Unexpected(what);
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::ExpectName(absl::string_view what) {
  if (current().kind != TokenKind::kName) return Unexpected(what);
  std::string name = current().text;
  Advance();
  return name;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseExpression(bool with_conditional) {
  ParseDepth depth(*this);
  OCTAVO_RETURN_IF_ERROR(CheckDepth(depth_));
  return with_conditional ? ParseConditional() : ParseOr();
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseTuple(bool with_conditional,
                                                               absl::string_view end_name,
                                                               bool is_parenthesized) {
  const int line = current().line;
  std::vector<ExpressionPointer> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) OCTAVO_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().kind == TokenKind::kOutputEnd || current().kind == TokenKind::kBlockEnd ||
        current().IsOperator(")") || (!end_name.empty() && current().IsName(end_name))) {
      break;
    }
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer item, ParseExpression(with_conditional));
    items.push_back(std::move(item));
    if (!current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !is_parenthesized) return Unexpected("an expression");
  ExpressionPointer tuple = New(ExpressionKind::kTuple, line);
  tuple->operands = std::move(items);
  return Finish(std::move(tuple));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseConditional() {
  const int line = current().line;
  const size_t known_before = unknown_names_.size();
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer value, ParseOr());
  while (SkipName("if")) {
    ExpressionPointer node = New(ExpressionKind::kConditional, line);
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer test, ParseOr());
    ExpressionPointer otherwise;
    if (SkipName("else")) {
      OCTAVO_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    node->operands.push_back(std::move(test));
    node->operands.push_back(std::move(value));
    node->operands.push_back(std::move(otherwise));
    unknown_names_.resize(known_before);
    OCTAVO_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
  }
  return value;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseOr() {
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer left, ParseAnd());
  while (current().IsName("or")) {
    ExpressionPointer node = New(ExpressionKind::kOr, current().line);
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer right, ParseAnd());
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    OCTAVO_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseAnd() {
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer left, ParseNot());
  while (current().IsName("and")) {
    ExpressionPointer node = New(ExpressionKind::kAnd, current().line);
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer right, ParseNot());
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    OCTAVO_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  ParseDepth depth(*this);
  OCTAVO_RETURN_IF_ERROR(CheckDepth(depth_));
  ExpressionPointer node = New(ExpressionKind::kNot, current().line);
  Advance();
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseNot());
  node->operands.push_back(std::move(operand));
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseCompare() {
  ExpressionPointer node = New(ExpressionKind::kCompare, current().line);
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer first, ParseSum());
  node->operands.push_back(std::move(first));
  while (true) {
    if (std::optional<Comparison> comparison = ComparisonOf(current())) {
      node->comparisons.push_back(*comparison);
    } else if (current().IsName("in")) {
      node->comparisons.push_back(Comparison::kIn);
    } else if (current().IsName("not") && next().IsName("in")) {
      node->comparisons.push_back(Comparison::kNotIn);
      Advance();
    } else {
      break;
    }
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseSum());
    node->operands.push_back(std::move(operand));
  }
  if (node->comparisons.empty()) return std::move(node->operands.front());
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSum() {
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer left, ParseConcatenation());
  while (current().IsOperator("+") || current().IsOperator("-")) {
    ExpressionPointer node = New(ExpressionKind::kBinary, current().line);
    node->binary = current().text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer right, ParseConcatenation());
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    OCTAVO_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseConcatenation() {
  ExpressionPointer node = New(ExpressionKind::kConcatenate, current().line);
  do {
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer part, ParseProduct());
    node->operands.push_back(std::move(part));
  } while (SkipOperator("~"));
  if (node->operands.size() == 1) return std::move(node->operands.front());
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseProduct() {
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer left, ParsePower());
  while (std::optional<BinaryOperator> op = ProductOf(current())) {
    ExpressionPointer node = New(ExpressionKind::kBinary, current().line);
    node->binary = *op;
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer right, ParsePower());
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    OCTAVO_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

// From left to right: 2 ** 3 ** 2 is 64 in Jinja.
absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePower() {
  OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer left, ParseUnary(true));
  while (current().IsOperator("**")) {
    ExpressionPointer node = New(ExpressionKind::kBinary, current().line);
    node->binary = BinaryOperator::kPower;
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer right, ParseUnary(true));
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    OCTAVO_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseUnary(bool with_filter) {
  ExpressionPointer node;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    ParseDepth depth(*this);
    OCTAVO_RETURN_IF_ERROR(CheckDepth(depth_));
    node = New(current().text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus,
               current().line);
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer operand, ParseUnary(false));
    node->operands.push_back(std::move(operand));
    OCTAVO_ASSIGN_OR_RETURN(node, Finish(std::move(node)));
  } else {
    OCTAVO_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  OCTAVO_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filter) return node;
  return ParsePostfixFilters(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePrimary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      ExpressionPointer node = New(ExpressionKind::kConstant, token.line);
      std::string text;
      for (; current().kind == TokenKind::kString; Advance()) text += current().text;
      node->constant = Value::String(std::move(text));
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      ExpressionPointer node = New(ExpressionKind::kConstant, token.line);
      node->constant =
          token.kind == TokenKind::kInteger ? Value(token.integer) : Value(token.number);
      Advance();
      return node;
    }
    default:
      break;
  }
  if (token.IsOperator("(")) {
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer node, ParseTuple(true, "", true));
    OCTAVO_RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseName() {
  const Token& token = current();
  ExpressionPointer node = New(ExpressionKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    node->constant = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value(false);
  } else if (token.text != "none" && token.text != "None") {
    node->kind = ExpressionKind::kName;
    node->name = token.text;
    for (Signature* signature : open_signatures_) {
      signature->uses_caller |= token.text == "caller";
      signature->uses_varargs |= token.text == "varargs";
      signature->uses_kwargs |= token.text == "kwargs";
    }
  }
  Advance();
  return node;
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseList() {
  ExpressionPointer node = New(ExpressionKind::kList, current().line);
  Advance();
  while (!current().IsOperator("]")) {
    if (!node->operands.empty()) OCTAVO_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().IsOperator("]")) break;
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer item, ParseExpression());
    node->operands.push_back(std::move(item));
  }
  Advance();
  return Finish(std::move(node));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseDict() {
  ExpressionPointer node = New(ExpressionKind::kDict, current().line);
  Advance();
  while (!current().IsOperator("}")) {
    if (!node->operands.empty()) OCTAVO_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().IsOperator("}")) break;
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer key, ParseExpression());
    OCTAVO_RETURN_IF_ERROR(ExpectOperator(":"));
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression());
    node->operands.push_back(std::move(key));
    node->operands.push_back(std::move(value));
  }
  Advance();
  return Finish(std::move(node));
}

}  // namespace octavo::jinja
