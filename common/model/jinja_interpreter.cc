#include "common/model/jinja_interpreter.h"

#include "absl/strings/str_cat.h"
#include "common/model/jinja_functions.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/status.h"

namespace octavo::jinja {

absl::StatusOr<std::string> Interpreter::Render(
    const Template& parsed, const std::vector<std::pair<std::string, Value>>& variables) {
  Scope input;
  for (const auto& [name, value] : variables) input.variables.insert_or_assign(name, value);
  Scope root;
  root.parent = &input;
  BoundedString out(runtime_.limits().max_output_bytes, "max_output_bytes");
  absl::Status status = Execute(parsed.body, root, out).status();
  if (status.ok()) return out.Take();
  if (IsRaised(status)) return status;
  return absl::Status(status.code(), absl::StrCat("line ", line_, ": ", status.message()));
}

absl::Status Interpreter::EnterDepth() {
  if (depth_ < runtime_.limits().max_evaluation_depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("evaluation nests deeper than ",
                                                   runtime_.limits().max_evaluation_depth,
                                                   " levels (max_evaluation_depth)"));
}

void Interpreter::Capture(Scope& scope) {
  for (Scope* at = &scope; at != nullptr && !at->is_captured; at = at->parent) {
    at->is_captured = true;
  }
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Body& body, Scope& scope,
                                                       BoundedString& out) {
  OCTAVO_RETURN_IF_ERROR(EnterDepth());
  ++depth_;
  absl::StatusOr<Flow> flow = Flow::kNext;
  for (const std::unique_ptr<Statement>& statement : body) {
    flow = ExecuteOne(*statement, scope, out);
    if (!flow.ok() || *flow != Flow::kNext) break;
  }
  --depth_;
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteOne(const Statement& statement, Scope& scope,
                                                          BoundedString& out) {
  line_ = statement.line;
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(1));
  switch (statement.kind) {
    case StatementKind::kText:
      out.Append(statement.text);
      OCTAVO_RETURN_IF_ERROR(out.status());
      return Flow::kNext;
    case StatementKind::kOutput: {
      OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expression, scope));
      OCTAVO_RETURN_IF_ERROR(Print(value, out));
      return Flow::kNext;
    }
    case StatementKind::kIf:
      return ExecuteIf(statement, scope, out);
    case StatementKind::kFor: {
      OCTAVO_ASSIGN_OR_RETURN(Value iterable, Evaluate(*statement.expression, scope));
      OCTAVO_RETURN_IF_ERROR(RunLoop(statement, scope, iterable, 0, out));
      return Flow::kNext;
    }
    case StatementKind::kSet: {
      OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expression, scope));
      OCTAVO_RETURN_IF_ERROR(Assign(statement.target, value, scope));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
      return ExecuteBuffered(statement, scope, out);
    case StatementKind::kMacro:
      OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
      scope.variables.insert_or_assign(statement.text,
                                       Value(DefineMacro(statement.text, statement, scope)));
      return Flow::kNext;
    case StatementKind::kCallBlock:
      OCTAVO_RETURN_IF_ERROR(ExecuteCallBlock(statement, scope, out));
      return Flow::kNext;
    case StatementKind::kWith:
      return ExecuteWith(statement, scope, out);
    case StatementKind::kScope: {
      OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
      NestedScope inner(*this, scope);
      return Execute(statement.body, *inner, out);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Statement& statement, Scope& scope,
                                                         BoundedString& out) {
  for (const Branch& branch : statement.branches) {
    OCTAVO_ASSIGN_OR_RETURN(Value test, Evaluate(*branch.test, scope));
    if (test.Truth()) return Execute(branch.body, scope, out);
  }
  return Execute(statement.else_body, scope, out);
}

// The body's text goes through the filters, then into the output or the target. A break or continue
// inside drops it.
absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteBuffered(const Statement& statement,
                                                               Scope& scope, BoundedString& out) {
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
  NestedScope inner(*this, scope);
  BoundedString buffer(runtime_.limits().max_string_bytes);
  OCTAVO_ASSIGN_OR_RETURN(Flow flow, Execute(statement.body, *inner, buffer));
  if (flow != Flow::kNext) return flow;
  OCTAVO_ASSIGN_OR_RETURN(Value text, runtime_.NewString(buffer.Take()));
  if (statement.filter != nullptr) {
    filter_inputs_.push_back(std::move(text));
    absl::StatusOr<Value> filtered = Evaluate(*statement.filter, *inner);
    filter_inputs_.pop_back();
    OCTAVO_ASSIGN_OR_RETURN(text, std::move(filtered));
  }
  if (statement.kind == StatementKind::kSetBlock) {
    OCTAVO_RETURN_IF_ERROR(Assign(statement.target, text, scope));
  } else {
    OCTAVO_RETURN_IF_ERROR(Print(text, out));
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteWith(const Statement& statement, Scope& scope,
                                                           BoundedString& out) {
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
  NestedScope inner(*this, scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.values[i], scope));
    OCTAVO_RETURN_IF_ERROR(Assign(statement.targets[i], value, *inner));
  }
  return Execute(statement.body, *inner, out);
}

absl::Status Interpreter::ExecuteCallBlock(const Statement& statement, Scope& scope,
                                           BoundedString& out) {
  OCTAVO_RETURN_IF_ERROR(runtime_.Charge(kScopeCost));
  const Value caller(DefineMacro("caller", statement, scope));
  OCTAVO_ASSIGN_OR_RETURN(Value result, EvaluateCall(*statement.expression, scope, &caller));
  return Print(result, out);
}

absl::Status Interpreter::Print(const Value& value, BoundedString& out) {
  if (value.is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(value.weight()));
    out.Append(value.text());
    return out.status();
  }
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime_, value));
  out.Append(text);
  return out.status();
}

absl::Status Interpreter::Assign(const Target& target, const Value& value, Scope& scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope.variables.insert_or_assign(target.name, value);
      return absl::OkStatus();
    case Target::Kind::kNamespaceAttribute: {
      for (const Scope* at = &scope; at != nullptr; at = at->parent) {
        auto found = at->variables.find(target.name);
        if (found == at->variables.end()) continue;
        Namespace* name_space = found->second.name_space();
        if (name_space == nullptr) break;
        name_space->Set(target.attribute, value);
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(absl::StrCat("'", target.name,
                                                     "' is not a namespace; its attribute '",
                                                     target.attribute, "' cannot be assigned"));
    }
    case Target::Kind::kTuple:
      break;
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime_, value));
  if (items.size() != target.parts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot unpack ", items.size(), " values into ",
                                                   target.parts.size(), " names"));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(Assign(target.parts[i], items[i], scope));
  }
  return absl::OkStatus();
}

const Macro* Interpreter::DefineMacro(absl::string_view name, const Statement& statement,
                                      Scope& scope) {
  Capture(scope);
  macros_.push_back(std::make_unique<Macro>(
      Macro{std::string(name), &statement.signature, &statement.body, &scope}));
  return macros_.back().get();
}

}  // namespace octavo::jinja
