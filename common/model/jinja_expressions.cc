// Expressions: the last part of jinja_interpreter.h. Each kind has a function of its own so that
// the recursion's frames stay small.

#include "absl/strings/str_cat.h"
#include "common/model/jinja_filters.h"
#include "common/model/jinja_functions.h"
#include "common/model/jinja_interpreter.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_tests.h"
#include "common/status.h"

namespace octavo::jinja {

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& node, Scope& scope) {
  line_ = node.line;
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(1));
  OCTAVO_RETURN_IF_ERROR(EnterDepth());
  ++depth_;
  absl::StatusOr<Value> value = EvaluateKind(node, scope);
  --depth_;
  return value;
}

absl::StatusOr<Value> Interpreter::EvaluateKind(const Expression& node, Scope& scope) {
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return EvaluateName(node, scope);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return EvaluateSequence(node, scope);
    case ExpressionKind::kDict:
      return EvaluateDict(node, scope);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem:
      return EvaluateItem(node, scope);
    case ExpressionKind::kSlice:
      return EvaluateSlice(node, scope);
    case ExpressionKind::kCall:
      return EvaluateCall(node, scope, nullptr);
    case ExpressionKind::kFilter:
      return EvaluateFilter(node, scope);
    case ExpressionKind::kTest:
      return EvaluateTest(node, scope);
    case ExpressionKind::kNot:
    case ExpressionKind::kNegate:
    case ExpressionKind::kPlus:
      return EvaluateUnary(node, scope);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return EvaluateLogical(node, scope);
    case ExpressionKind::kBinary:
      return EvaluateBinary(node, scope);
    case ExpressionKind::kCompare:
      return EvaluateCompare(node, scope);
    case ExpressionKind::kConcatenate:
      return EvaluateConcatenate(node, scope);
    case ExpressionKind::kConditional:
      return EvaluateConditional(node, scope);
  }
  return Value();
}

absl::StatusOr<Value> Interpreter::EvaluateName(const Expression& node, const Scope& scope) {
  uint64_t scope_count = 0;
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    auto found = at->variables.find(node.name);
    if (found != at->variables.end()) return found->second;
    ++scope_count;
  }
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kObjectCost + scope_count / 2));
  return FindGlobal(runtime_, node.name);
}

absl::StatusOr<Value> Interpreter::EvaluateSequence(const Expression& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.operands.size());
  for (const ExpressionPointer& operand : node.operands) {
    OCTAVO_ASSIGN_OR_RETURN(Value item, Evaluate(*operand, scope));
    items.push_back(std::move(item));
  }
  return runtime_.NewSequence(std::move(items), node.kind == ExpressionKind::kList
                                                    ? SequenceKind::kList
                                                    : SequenceKind::kTuple);
}

absl::StatusOr<Value> Interpreter::EvaluateDict(const Expression& node, Scope& scope) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    OCTAVO_ASSIGN_OR_RETURN(Value key, Evaluate(*node.operands[i], scope));
    OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*node.operands[i + 1], scope));
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(dict->FindCost(key)));
    if (!IsHashable(key)) {
      return absl::InvalidArgumentError(absl::StrCat("unhashable type: '", key.TypeName(), "'"));
    }
    dict->Set(std::move(key), std::move(value));
  }
  return runtime_.NewDict(std::move(dict));
}

absl::StatusOr<Value> Interpreter::EvaluateItem(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value object, Evaluate(*node.operands[0], scope));
  if (node.kind == ExpressionKind::kAttribute) return GetAttribute(object, node.name);
  OCTAVO_ASSIGN_OR_RETURN(Value key, Evaluate(*node.operands[1], scope));
  return GetItem(runtime_, object, key);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value object, Evaluate(*node.operands[0], scope));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.operands[i + 1] == nullptr) continue;
    OCTAVO_ASSIGN_OR_RETURN(bounds[i], Evaluate(*node.operands[i + 1], scope));
  }
  return GetSlice(runtime_, object, &bounds[0], &bounds[1], &bounds[2]);
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& given, Scope& scope) {
  Arguments arguments;
  for (const ExpressionPointer& argument : given.positional) {
    OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : given.named) {
    OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (given.star != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(Value list, Evaluate(*given.star, scope));
    OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime_, list));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (given.double_star != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(Value map, Evaluate(*given.double_star, scope));
    if (map.dict() == nullptr) {
      return absl::InvalidArgumentError("the argument after ** must be a mapping");
    }
    for (const auto& [key, value] : map.dict()->entries()) {
      OCTAVO_RETURN_IF_ERROR(runtime_.Charge(1 + given.named.size()));
      if (!key.is_string()) return absl::InvalidArgumentError("keywords must be strings");
      for (const auto& [name, argument] : given.named) {
        if (name == key.text()) {
          return absl::InvalidArgumentError(
              absl::StrCat("the argument '", name, "' is given twice"));
        }
      }
      arguments.named.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& node, Scope& scope,
                                                const Value* caller) {
  OCTAVO_ASSIGN_OR_RETURN(Value callee, Evaluate(*node.operands[0], scope));
  OCTAVO_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node.arguments, scope));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = node.line;
  return Call(callee, arguments);
}

absl::StatusOr<Value> Interpreter::EvaluateFilter(const Expression& node, Scope& scope) {
  Value input;
  if (node.operands.empty()) {
    input = filter_inputs_.back();
  } else {
    OCTAVO_ASSIGN_OR_RETURN(input, Evaluate(*node.operands[0], scope));
  }
  OCTAVO_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node.arguments, scope));
  line_ = node.line;
  return ApplyFilter(runtime_, node.name, input, arguments);
}

absl::StatusOr<Value> Interpreter::EvaluateTest(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*node.operands[0], scope));
  OCTAVO_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node.arguments, scope));
  line_ = node.line;
  OCTAVO_ASSIGN_OR_RETURN(bool result, ApplyTest(runtime_, node.name, value, arguments));
  return Value(result);
}

absl::StatusOr<Value> Interpreter::EvaluateUnary(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*node.operands[0], scope));
  if (node.kind == ExpressionKind::kNot) return Value(!value.Truth());
  return node.kind == ExpressionKind::kNegate ? Negate(value) : Plus(value);
}

// The operand that decides, not its truth.
absl::StatusOr<Value> Interpreter::EvaluateLogical(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0], scope));
  if (left.Truth() == (node.kind == ExpressionKind::kOr)) return left;
  return Evaluate(*node.operands[1], scope);
}

absl::StatusOr<Value> Interpreter::EvaluateBinary(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0], scope));
  OCTAVO_ASSIGN_OR_RETURN(Value right, Evaluate(*node.operands[1], scope));
  line_ = node.line;
  return ApplyBinary(runtime_, node.binary, left, right);
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0], scope));
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Value right, Evaluate(*node.operands[i + 1], scope));
    OCTAVO_ASSIGN_OR_RETURN(bool holds, Compare(runtime_, node.comparisons[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Interpreter::EvaluateConcatenate(const Expression& node, Scope& scope) {
  BoundedString out(runtime_.limits().max_string_bytes);
  for (const ExpressionPointer& operand : node.operands) {
    OCTAVO_ASSIGN_OR_RETURN(Value part, Evaluate(*operand, scope));
    OCTAVO_RETURN_IF_ERROR(Print(part, out));
  }
  return runtime_.NewString(out.Take());
}

absl::StatusOr<Value> Interpreter::EvaluateConditional(const Expression& node, Scope& scope) {
  OCTAVO_ASSIGN_OR_RETURN(Value test, Evaluate(*node.operands[0], scope));
  if (test.Truth()) return Evaluate(*node.operands[1], scope);
  if (node.operands[2] != nullptr) return Evaluate(*node.operands[2], scope);
  return Value::Undefined(absl::StrCat("the inline if-expression on line ", node.line,
                                       " evaluated to false and no else section was defined."));
}

}  // namespace octavo::jinja
