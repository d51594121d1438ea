#pragma once

// One rendering of a template: walks its tree, statement by statement, and writes the text.
//
// Scopes are Jinja's: loops, macros, call, filter, set and with blocks open one; `if` does not. A
// name is looked up from the innermost scope outwards, then among the input's variables, then among
// the global functions. Thread rule: one render, one thread, one Interpreter; the Template is
// shared and immutable. Invariants: (1) evaluation never nests deeper than max_evaluation_depth.
// (2) Macros, and the scopes they close over, live until the render ends, whoever still points to
// them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_ast.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

// The variables of one block. Keys point into the template or the input.
struct Scope {
  Scope* parent = nullptr;
  absl::flat_hash_map<absl::string_view, Value> variables;
  bool is_captured = false;  // by a macro: lives until the render ends
};

// A macro, or the body of a call block, with the scope it was defined in.
struct Macro {
  std::string name;
  const Signature* signature = nullptr;
  const Body* body = nullptr;
  Scope* scope = nullptr;
};

// What `loop` is inside a for.
struct LoopState {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // around the loop; only a recursive loop uses it, which keeps it alive
  std::vector<Value> items;
  size_t index = 0;
  int depth = 0;                 // of recursion, from 0
  std::vector<Value> last_seen;  // by loop.changed(); empty before the first call
};

class Interpreter {
 public:
  explicit Interpreter(Runtime& runtime) : runtime_(runtime) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Errors: "line N: ..." for what goes wrong in the template; the message alone when it calls
  // raise_exception. `variables` outlives the call.
  absl::StatusOr<std::string> Render(const Template& parsed,
                                     const std::vector<std::pair<std::string, Value>>& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class NestedScope;

  // Statements (jinja_interpreter.cc).
  absl::StatusOr<Flow> Execute(const Body& body, Scope& scope, BoundedString& out);
  absl::StatusOr<Flow> ExecuteOne(const Statement& statement, Scope& scope, BoundedString& out);
  absl::StatusOr<Flow> ExecuteIf(const Statement& statement, Scope& scope, BoundedString& out);
  absl::StatusOr<Flow> ExecuteBuffered(const Statement& statement, Scope& scope,
                                       BoundedString& out);
  absl::StatusOr<Flow> ExecuteWith(const Statement& statement, Scope& scope, BoundedString& out);
  absl::Status ExecuteCallBlock(const Statement& statement, Scope& scope, BoundedString& out);
  absl::Status Print(const Value& value, BoundedString& out);
  absl::Status Assign(const Target& target, const Value& value, Scope& scope);
  const Macro* DefineMacro(absl::string_view name, const Statement& statement, Scope& scope);

  // Loops and calls (jinja_calls.cc).
  absl::Status RunLoop(const Statement& statement, Scope& scope, const Value& iterable, int depth,
                       BoundedString& out);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& statement, Scope& scope,
                                               const Value& iterable);
  absl::StatusOr<Value> Call(const Value& callee, const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const Arguments& arguments);
  absl::Status BindParameters(const Macro& macro, const Arguments& arguments, Scope& scope);
  absl::StatusOr<Value> CallLoop(LoopState& loop, const Arguments& arguments);
  absl::StatusOr<Value> CallLoopMethod(LoopState& loop, absl::string_view name,
                                       const Arguments& arguments);

  // Expressions (jinja_expressions.cc).
  absl::StatusOr<Value> Evaluate(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateKind(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateName(const Expression& node, const Scope& scope);
  absl::StatusOr<Value> EvaluateSequence(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateDict(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateSlice(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateItem(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateCall(const Expression& node, Scope& scope, const Value* caller);
  absl::StatusOr<Value> EvaluateFilter(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateTest(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateUnary(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateLogical(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateBinary(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateCompare(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateConcatenate(const Expression& node, Scope& scope);
  absl::StatusOr<Value> EvaluateConditional(const Expression& node, Scope& scope);
  absl::StatusOr<Arguments> EvaluateArguments(const CallArguments& arguments, Scope& scope);

  absl::Status EnterDepth();
  // Keeps `scope` and what surrounds it until the render ends.
  static void Capture(Scope& scope);

  Runtime& runtime_;
  int depth_ = 0;
  int line_ = 1;                      // of what was last begun: where an error happened
  std::vector<Value> filter_inputs_;  // what the innermost filter or set block's chain works on
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
};

// A scope that lives as long as this guard, or longer when a macro captured it.
class Interpreter::NestedScope {
 public:
  NestedScope(Interpreter& interpreter, Scope& parent)
      : interpreter_(interpreter), scope_(std::make_unique<Scope>()) {
    scope_->parent = &parent;
  }
  ~NestedScope() {
    if (scope_->is_captured) interpreter_.kept_scopes_.push_back(std::move(scope_));
  }
  NestedScope(const NestedScope&) = delete;
  NestedScope& operator=(const NestedScope&) = delete;
  Scope& operator*() { return *scope_; }

 private:
  Interpreter& interpreter_;
  std::unique_ptr<Scope> scope_;
};

}  // namespace octavo::jinja
