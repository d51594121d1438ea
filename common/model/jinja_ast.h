#pragma once

// A parsed template: statements that hold expressions. Built by jinja_parser.h, walked by
// jinja_interpreter.h, immutable between.
//
// Invariant: no node is deeper than kJinjaMaxTreeDepth, so recursion over the tree is safe.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/jinja_operators.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

// The arguments of a call, a filter or a test, not evaluated yet.
struct CallArguments {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer star;         // *list, or null
  ExpressionPointer double_star;  // **dict, or null
};

enum class ExpressionKind : uint8_t {
  kConstant,   // constant
  kName,       // name
  kList,       // operands
  kTuple,      // operands
  kDict,       // operands: key, value, key, value, ...
  kAttribute,  // operands[0].name
  kItem,       // operands[0][operands[1]]
  kSlice,      // operands[0][operands[1]:operands[2]:operands[3]], the last three null where absent
  kCall,       // operands[0](arguments)
  kFilter,     // operands[0] | name(arguments); operands is empty at the head of a filter block's
               // chain
  kTest,       // operands[0] is name(arguments)
  kNot,        // not operands[0]
  kNegate,     // -operands[0]
  kPlus,       // +operands[0]
  kAnd,        // operands[0] and operands[1]
  kOr,         // operands[0] or operands[1]
  kBinary,     // operands[0] binary operands[1]
  kCompare,    // operands[0] comparisons[0] operands[1] comparisons[1] operands[2] ...
  kConcatenate,  // operands[0] ~ operands[1] ~ ...
  kConditional,  // operands[1] if operands[0] else operands[2], the last null where absent
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 1;
  int depth = 1;
  BinaryOperator binary = BinaryOperator::kAdd;
  std::string name;
  Value constant;
  std::vector<ExpressionPointer> operands;
  std::vector<Comparison> comparisons;
  CallArguments arguments;
};

// What an assignment or a loop writes to.
struct Target {
  enum class Kind : uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  int line = 1;
  std::string name;       // of the variable, or of the namespace
  std::string attribute;  // of the namespace
  std::vector<Target> parts;
};

// The parameters of a macro or a call block.
struct Signature {
  struct Parameter {
    std::string name;
    ExpressionPointer default_value;  // null without one
  };
  std::vector<Parameter> parameters;
  // Whether the body uses these names, which it must to be given more than its parameters.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // {{ expression }}
  kIf,           // branches in turn, else_body
  kFor,          // for target in expression if test: body; else_body
  kSet,          // set target = expression
  kSetBlock,     // set target | filter: body
  kMacro,        // text is its name; signature, body
  kCallBlock,    // call(signature) expression: body
  kFilterBlock,  // filter: body
  kWith,         // with targets = values: body
  kScope,        // body in a scope of its own ({% generation %})
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPointer test;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1;
  int depth = 1;
  std::string text;
  Target target;
  ExpressionPointer expression;
  ExpressionPointer test;    // of a loop
  ExpressionPointer filter;  // of a filter or set block
  bool is_recursive = false;
  std::vector<Branch> branches;
  std::vector<Target> targets;
  std::vector<ExpressionPointer> values;
  Signature signature;
  Body body;
  Body else_body;
};

struct Template {
  Body body;
};

}  // namespace octavo::jinja
