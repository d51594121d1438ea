// Loops and calls: the middle part of jinja_interpreter.h.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/jinja_functions.h"
#include "common/model/jinja_interpreter.h"
#include "common/model/jinja_operators.h"
#include "common/status.h"

namespace octavo::jinja {

std::optional<Value> LoopAttribute(const LoopState& loop, absl::string_view name) {
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{loop.depth} + 1);
  if (name == "depth0") return Value(int64_t{loop.depth});
  if (name == "previtem") {
    if (index == 0) return Value::Undefined("there is no previous item");
    return loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= length) return Value::Undefined("there is no next item");
    return loop.items[loop.index + 1];
  }
  return std::nullopt;
}

// The items that pass the loop's own `if`.
absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& statement, Scope& scope,
                                                          const Value& iterable) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime_, iterable));
  if (statement.test == nullptr) return items;
  std::vector<Value> passed;
  for (Value& item : items) {
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
    NestedScope inner(*this, scope);
    OCTAVO_RETURN_IF_ERROR(Assign(statement.target, item, *inner));
    OCTAVO_ASSIGN_OR_RETURN(Value test, Evaluate(*statement.test, *inner));
    if (test.Truth()) passed.push_back(std::move(item));
  }
  return passed;
}

absl::Status Interpreter::RunLoop(const Statement& statement, Scope& scope, const Value& iterable,
                                  int depth, BoundedString& out) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(statement, scope, iterable));
  if (items.empty()) return Execute(statement.else_body, scope, out).status();
  if (statement.is_recursive) Capture(scope);
  auto loop = std::make_shared<LoopState>();
  loop->statement = &statement;
  loop->scope = &scope;
  loop->items = std::move(items);
  loop->depth = depth;
  const Value loop_value(loop);
  absl::Status status;
  bool any_completed = false;
  for (; loop->index < loop->items.size(); ++loop->index) {
    status = runtime_.Charge(kScopeCost);
    if (!status.ok()) break;
    NestedScope inner(*this, scope);
    (*inner).variables.insert_or_assign("loop", loop_value);
    status = Assign(statement.target, loop->items[loop->index], *inner);
    if (!status.ok()) break;
    absl::StatusOr<Flow> flow = Execute(statement.body, *inner, out);
    status = flow.status();
    if (!status.ok() || *flow == Flow::kBreak) break;
    any_completed = any_completed || *flow == Flow::kNext;
  }
  // A loop that was kept somewhere stays at its last turn, and must not hold itself.
  loop->index = std::min(loop->index, loop->items.size() - 1);
  loop->last_seen.clear();
  // Jinja's else is for loops of which no turn came to its end, be it for want of items or by break
  // and continue.
  if (!status.ok() || any_completed || statement.else_body.empty()) return status;
  return Execute(statement.else_body, scope, out).status();
}

absl::StatusOr<Value> Interpreter::Call(const Value& callee, const Arguments& arguments) {
  if (const Value::MethodPointer* method = callee.As<Value::MethodPointer>()) {
    if (const auto* loop = (*method)->receiver.As<Value::LoopPointer>()) {
      return CallLoopMethod(**loop, (*method)->name, arguments);
    }
    return CallMethod(runtime_, **method, arguments);
  }
  if (const Macro* const* macro = callee.As<const Macro*>()) return CallMacro(**macro, arguments);
  if (const Function* function = callee.As<Function>()) {
    return CallFunction(runtime_, *function, arguments);
  }
  if (const Value::LoopPointer* loop = callee.As<Value::LoopPointer>()) {
    return CallLoop(**loop, arguments);
  }
  if (callee.is_undefined()) return UndefinedError(callee);
  return absl::InvalidArgumentError(
      absl::StrCat("'", callee.TypeName(), "' object is not callable"));
}

absl::StatusOr<Value> Interpreter::CallMacro(const Macro& macro, const Arguments& arguments) {
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
  NestedScope inner(*this, *macro.scope);
  OCTAVO_RETURN_IF_ERROR(BindParameters(macro, arguments, *inner));
  BoundedString out(runtime_.limits().max_string_bytes);
  OCTAVO_RETURN_IF_ERROR(Execute(*macro.body, *inner, out).status());
  return runtime_.NewString(out.Take());
}

absl::Status Interpreter::BindParameters(const Macro& macro, const Arguments& arguments,
                                         Scope& scope) {
  const Signature& signature = *macro.signature;
  const size_t positional_count =
      std::min(arguments.positional.size(), signature.parameters.size());
  if (arguments.positional.size() > positional_count && !signature.uses_varargs) {
    return absl::InvalidArgumentError(absl::StrCat("macro '", macro.name, "' takes at most ",
                                                   signature.parameters.size(), " arguments"));
  }
  OCTAVO_RETURN_IF_ERROR(
      runtime_.Charge((1 + signature.parameters.size()) * (1 + arguments.named.size())));
  std::vector<bool> is_used(arguments.named.size(), false);
  auto take_named = [&](absl::string_view name) -> const Value* {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (is_used[i] || arguments.named[i].first != name) continue;
      is_used[i] = true;
      return &arguments.named[i].second;
    }
    return nullptr;
  };
  std::vector<const Value*> given;
  given.reserve(signature.parameters.size());
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    given.push_back(i < positional_count ? &arguments.positional[i]
                                         : take_named(signature.parameters[i].name));
  }
  if (signature.uses_caller) {
    const Value* caller = take_named("caller");
    scope.variables["caller"] = caller != nullptr ? *caller : Value::Undefined("No caller defined");
  }
  auto rest = std::make_shared<Dict>();
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    if (is_used[i]) continue;
    if (!signature.uses_kwargs) {
      return absl::InvalidArgumentError(absl::StrCat("macro '", macro.name, "' has no parameter '",
                                                     arguments.named[i].first, "'"));
    }
    rest->Set(Value::String(arguments.named[i].first), arguments.named[i].second);
  }
  if (signature.uses_kwargs) {
    OCTAVO_ASSIGN_OR_RETURN(scope.variables["kwargs"], runtime_.NewDict(std::move(rest)));
  }
  if (signature.uses_varargs) {
    std::vector<Value> extra(
        arguments.positional.begin() + static_cast<std::ptrdiff_t>(positional_count),
        arguments.positional.end());
    OCTAVO_ASSIGN_OR_RETURN(scope.variables["varargs"],
                            runtime_.NewSequence(std::move(extra), SequenceKind::kTuple));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const Signature::Parameter& parameter = signature.parameters[i];
    Value value;
    if (given[i] != nullptr) {
      value = *given[i];
    } else if (parameter.default_value != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(value, Evaluate(*parameter.default_value, scope));
    } else {
      value = Value::Undefined(absl::StrCat("parameter '", parameter.name, "' was not provided"));
    }
    scope.variables.insert_or_assign(parameter.name, std::move(value));
  }
  return absl::OkStatus();
}

// loop(items): the same loop, one level down.
absl::StatusOr<Value> Interpreter::CallLoop(LoopState& loop, const Arguments& arguments) {
  if (!loop.statement->is_recursive) {
    return absl::InvalidArgumentError(
        "this loop cannot be called; it needs the word 'recursive' in its tag");
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<const Value*> bound,
                          BindArguments("loop", arguments, {"iterable"}, 1));
  BoundedString out(runtime_.limits().max_string_bytes);
  OCTAVO_RETURN_IF_ERROR(RunLoop(*loop.statement, *loop.scope, *bound[0], loop.depth + 1, out));
  return runtime_.NewString(out.Take());
}

absl::StatusOr<Value> Interpreter::CallLoopMethod(LoopState& loop, absl::string_view name,
                                                  const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (!arguments.named.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("loop.", name, " takes no keyword arguments"));
  }
  if (name == "cycle") {
    if (given.empty()) return absl::InvalidArgumentError("no items for cycling given");
    return given[loop.index % given.size()];
  }
  bool is_same = given.size() == loop.last_seen.size() && !given.empty();
  for (size_t i = 0; is_same && i < given.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(is_same, EqualCharged(runtime_, given[i], loop.last_seen[i]));
  }
  loop.last_seen = given;
  return Value(!is_same);
}

}  // namespace octavo::jinja
