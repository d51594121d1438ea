// What can follow a value (attributes, subscripts, calls, filters, tests) and what can be assigned
// to: the second half of jinja_expression_parser.h.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/jinja_expression_parser.h"
#include "common/model/jinja_filters.h"
#include "common/model/jinja_limits.h"
#include "common/model/jinja_tests.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

bool IsReserved(absl::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

// Whether a test's single argument may follow without parentheses: `x is divisibleby 3`.
bool BeginsTestArgument(const Token& token) {
  switch (token.kind) {
    case TokenKind::kName:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return token.IsOperator("[") || token.IsOperator("{");
  }
}

}  // namespace

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePostfix(ExpressionPointer node) {
  while (true) {
    if (current().IsOperator(".")) {
      OCTAVO_ASSIGN_OR_RETURN(node, ParseDot(std::move(node)));
    } else if (current().IsOperator("[")) {
      OCTAVO_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (current().IsOperator("(")) {
      OCTAVO_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParsePostfixFilters(ExpressionPointer node) {
  while (true) {
    if (current().IsOperator("|")) {
      OCTAVO_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (current().IsName("is")) {
      OCTAVO_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (current().IsOperator("(")) {
      OCTAVO_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseDot(ExpressionPointer node) {
  const int line = current().line;
  Advance();
  const Token& token = current();
  ExpressionPointer access;
  if (token.kind == TokenKind::kName) {
    access = New(ExpressionKind::kAttribute, line);
    access->name = token.text;
    access->operands.push_back(std::move(node));
  } else if (token.kind == TokenKind::kInteger) {
    access = New(ExpressionKind::kItem, line);
    ExpressionPointer index = New(ExpressionKind::kConstant, line);
    index->constant = Value(token.integer);
    access->operands.push_back(std::move(node));
    access->operands.push_back(std::move(index));
  } else {
    return Unexpected("a name or a number");
  }
  Advance();
  return Finish(std::move(access));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseSubscript(ExpressionPointer node) {
  const int line = current().line;
  Advance();
  std::vector<ExpressionPointer> bounds;  // start, stop, step
  bool is_slice = false;
  auto at_end = [this] {
    return current().IsOperator(":") || current().IsOperator("]") || current().IsOperator(",");
  };
  do {
    is_slice = is_slice || !bounds.empty();
    ExpressionPointer bound;
    if (!at_end()) {
      OCTAVO_ASSIGN_OR_RETURN(bound, ParseExpression());
    }
    bounds.push_back(std::move(bound));
  } while (bounds.size() < 3 && SkipOperator(":"));
  is_slice = bounds.size() > 1;
  if (current().IsOperator(",")) {
    return SyntaxError(current().line, "a subscript of several values is not supported");
  }
  if (!is_slice && bounds.front() == nullptr) return Unexpected("a subscript");
  OCTAVO_RETURN_IF_ERROR(ExpectOperator("]"));
  if (is_slice) bounds.resize(3);
  ExpressionPointer access = New(is_slice ? ExpressionKind::kSlice : ExpressionKind::kItem, line);
  access->operands.push_back(std::move(node));
  for (ExpressionPointer& bound : bounds) access->operands.push_back(std::move(bound));
  return Finish(std::move(access));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseCall(ExpressionPointer node) {
  ExpressionPointer call = New(ExpressionKind::kCall, current().line);
  call->operands.push_back(std::move(node));
  OCTAVO_ASSIGN_OR_RETURN(call->arguments, ParseArguments());
  return Finish(std::move(call));
}

absl::StatusOr<CallArguments> ExpressionParser::ParseArguments() {
  CallArguments arguments;
  OCTAVO_RETURN_IF_ERROR(ExpectOperator("("));
  bool is_first = true;
  while (!current().IsOperator(")")) {
    if (!is_first) {
      OCTAVO_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator(")")) break;
    }
    is_first = false;
    OCTAVO_RETURN_IF_ERROR(ParseArgument(&arguments));
  }
  Advance();
  return arguments;
}

absl::Status ExpressionParser::ParseArgument(CallArguments* arguments) {
  absl::Status misplaced = SyntaxError(current().line, "the arguments of a call are out of order");
  if (SkipOperator("*")) {
    if (arguments->star != nullptr || arguments->double_star != nullptr) return misplaced;
    OCTAVO_ASSIGN_OR_RETURN(arguments->star, ParseExpression());
  } else if (SkipOperator("**")) {
    if (arguments->double_star != nullptr) return misplaced;
    OCTAVO_ASSIGN_OR_RETURN(arguments->double_star, ParseExpression());
  } else if (current().kind == TokenKind::kName && next().IsOperator("=")) {
    if (arguments->double_star != nullptr) return misplaced;
    std::string name = current().text;
    const int line = current().line;
    if (arguments->named.size() >= kJinjaMaxParameters) {
      return SyntaxError(line, absl::StrCat("more than ", kJinjaMaxParameters, " parameters"));
    }
    for (const auto& [earlier, value] : arguments->named) {
      if (earlier == name) {
        return SyntaxError(current().line, absl::StrCat("the argument '", name, "' is repeated"));
      }
    }
    Advance();
    Advance();
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression());
    arguments->named.emplace_back(std::move(name), std::move(value));
  } else {
    if (arguments->star != nullptr || arguments->double_star != nullptr ||
        !arguments->named.empty()) {
      return misplaced;
    }
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer value, ParseExpression());
    arguments->positional.push_back(std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseFilters(ExpressionPointer operand,
                                                                 bool is_inline) {
  while (is_inline || SkipOperator("|")) {
    is_inline = false;
    ExpressionPointer filter = New(ExpressionKind::kFilter, current().line);
    OCTAVO_ASSIGN_OR_RETURN(filter->name, ExpectName("the name of a filter"));
    while (SkipOperator(".")) {
      OCTAVO_ASSIGN_OR_RETURN(std::string part, ExpectName("the name of a filter"));
      absl::StrAppend(&filter->name, ".", part);
    }
    if (FindFilter(filter->name) == nullptr) NoteUnknown("filter", *filter);
    if (current().IsOperator("(")) {
      OCTAVO_ASSIGN_OR_RETURN(filter->arguments, ParseArguments());
    }
    if (operand != nullptr) filter->operands.push_back(std::move(operand));
    OCTAVO_ASSIGN_OR_RETURN(operand, Finish(std::move(filter)));
  }
  return operand;
}

void ExpressionParser::NoteUnknown(absl::string_view kind, const Expression& node) {
  if (conditional_depth_ > 0) return;
  unknown_names_.push_back(
      SyntaxError(node.line, absl::StrCat("the ", kind, " '", node.name, "' is not supported")));
}

absl::StatusOr<ExpressionPointer> ExpressionParser::ParseTest(ExpressionPointer node) {
  ExpressionPointer test = New(ExpressionKind::kTest, current().line);
  Advance();
  const bool is_negated = SkipName("not");
  OCTAVO_ASSIGN_OR_RETURN(test->name, ExpectName("the name of a test"));
  while (SkipOperator(".")) {
    OCTAVO_ASSIGN_OR_RETURN(std::string part, ExpectName("the name of a test"));
    absl::StrAppend(&test->name, ".", part);
  }
  if (FindTest(test->name) == nullptr) NoteUnknown("test", *test);
  test->operands.push_back(std::move(node));
  if (current().IsOperator("(")) {
    OCTAVO_ASSIGN_OR_RETURN(test->arguments, ParseArguments());
  } else if (BeginsTestArgument(current())) {
    if (current().IsName("is")) {
      return SyntaxError(current().line, "tests cannot be chained with 'is'");
    }
    ParseDepth depth(*this);
    OCTAVO_RETURN_IF_ERROR(CheckDepth(depth_));
    OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer argument, ParsePrimary());
    OCTAVO_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->arguments.positional.push_back(std::move(argument));
  }
  OCTAVO_ASSIGN_OR_RETURN(test, Finish(std::move(test)));
  if (!is_negated) return test;
  ExpressionPointer negation = New(ExpressionKind::kNot, test->line);
  negation->operands.push_back(std::move(test));
  return Finish(std::move(negation));
}

absl::StatusOr<std::string> ExpressionParser::ParseTargetName() {
  const int line = current().line;
  OCTAVO_ASSIGN_OR_RETURN(std::string name, ExpectName("a name to assign to"));
  if (IsReserved(name)) return SyntaxError(line, absl::StrCat("cannot assign to '", name, "'"));
  return name;
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(bool with_namespace,
                                                     absl::string_view end_name) {
  ParseDepth depth(*this);
  OCTAVO_RETURN_IF_ERROR(CheckDepth(depth_));
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = current().line;
  bool is_tuple = false;
  while (true) {
    if (!tuple.parts.empty()) OCTAVO_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().kind == TokenKind::kBlockEnd || current().IsOperator(")") ||
        current().IsOperator("=") || current().IsName(end_name)) {
      break;
    }
    Target part;
    part.line = current().line;
    if (SkipOperator("(")) {
      OCTAVO_ASSIGN_OR_RETURN(part, ParseTarget(with_namespace, end_name));
      OCTAVO_RETURN_IF_ERROR(ExpectOperator(")"));
    } else {
      OCTAVO_ASSIGN_OR_RETURN(part.name, ParseTargetName());
      if (with_namespace && SkipOperator(".")) {
        part.kind = Target::Kind::kNamespaceAttribute;
        OCTAVO_ASSIGN_OR_RETURN(part.attribute, ExpectName("an attribute of a namespace"));
      }
    }
    tuple.parts.push_back(std::move(part));
    if (!current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple.parts.empty()) return Unexpected("a name to assign to");
  Target only = std::move(tuple.parts.front());
  return only;
}

absl::StatusOr<Signature> ExpressionParser::ParseSignature() {
  Signature signature;
  OCTAVO_RETURN_IF_ERROR(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (!signature.parameters.empty()) OCTAVO_RETURN_IF_ERROR(ExpectOperator(","));
    Signature::Parameter parameter;
    const int line = current().line;
    if (signature.parameters.size() >= kJinjaMaxParameters) {
      return SyntaxError(line, absl::StrCat("more than ", kJinjaMaxParameters, " parameters"));
    }
    OCTAVO_ASSIGN_OR_RETURN(parameter.name, ParseTargetName());
    for (const Signature::Parameter& earlier : signature.parameters) {
      if (earlier.name == parameter.name) {
        return SyntaxError(line, absl::StrCat("the parameter '", parameter.name, "' is repeated"));
      }
    }
    if (SkipOperator("=")) {
      OCTAVO_ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
    } else if (!signature.parameters.empty() &&
               signature.parameters.back().default_value != nullptr) {
      return SyntaxError(line, absl::StrCat("the parameter '", parameter.name,
                                            "' has no default and follows one that has"));
    }
    signature.parameters.push_back(std::move(parameter));
  }
  Advance();
  return signature;
}

}  // namespace octavo::jinja
