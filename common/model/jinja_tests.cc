#include "common/model/jinja_tests.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_filters.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

using Result = absl::StatusOr<bool>;

Result IsDefined(Runtime&, const Value& value, const Value*) { return !value.is_undefined(); }
Result IsUndefined(Runtime&, const Value& value, const Value*) { return value.is_undefined(); }
Result IsNone(Runtime&, const Value& value, const Value*) { return value.is_none(); }
Result IsString(Runtime&, const Value& value, const Value*) { return value.is_string(); }
Result IsMapping(Runtime&, const Value& value, const Value*) { return value.dict() != nullptr; }
Result IsNumber(Runtime&, const Value& value, const Value*) { return value.is_number(); }
Result IsInteger(Runtime&, const Value& value, const Value*) {
  return value.As<int64_t>() != nullptr;
}
Result IsFloat(Runtime&, const Value& value, const Value*) { return value.As<double>() != nullptr; }
Result IsBoolean(Runtime&, const Value& value, const Value*) { return value.As<bool>() != nullptr; }
Result IsTrue(Runtime&, const Value& value, const Value*) {
  return value.As<bool>() != nullptr && *value.As<bool>();
}
Result IsFalse(Runtime&, const Value& value, const Value*) {
  return value.As<bool>() != nullptr && !*value.As<bool>();
}
Result IsEscaped(Runtime&, const Value& value, const Value*) { return value.is_markup(); }

Result IsCallable(Runtime&, const Value& value, const Value*) {
  return value.As<const Macro*>() != nullptr || value.As<Function>() != nullptr ||
         value.As<Value::MethodPointer>() != nullptr || value.As<Value::LoopPointer>() != nullptr ||
         value.is_undefined();
}

Result IsIterable(Runtime&, const Value& value, const Value*) {
  return value.is_string() || value.dict() != nullptr || value.sequence() != nullptr ||
         value.is_undefined() || value.As<Value::LoopPointer>() != nullptr;
}

// What has a length and subscripts; undefined has both.
Result IsSequence(Runtime&, const Value& value, const Value*) {
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr) {
    return sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
           sequence->kind == SequenceKind::kRange;
  }
  return value.is_string() || value.dict() != nullptr || value.is_undefined();
}

Result IsLower(Runtime& runtime, const Value& value, const Value*) {
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, value));
  OCTAVO_ASSIGN_OR_RETURN(
      Value result,
      CallMethod(runtime, BoundMethod{Value::String(std::move(text)), "islower"}, {}));
  return result.Truth();
}
Result IsUpper(Runtime& runtime, const Value& value, const Value*) {
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, value));
  OCTAVO_ASSIGN_OR_RETURN(
      Value result,
      CallMethod(runtime, BoundMethod{Value::String(std::move(text)), "isupper"}, {}));
  return result.Truth();
}

Result HasRemainder(Runtime& runtime, const Value& value, const Value& divisor,
                    const Value& remainder) {
  OCTAVO_ASSIGN_OR_RETURN(Value rest,
                          ApplyBinary(runtime, BinaryOperator::kModulo, value, divisor));
  return Equal(rest, remainder);
}
Result IsOdd(Runtime& runtime, const Value& value, const Value*) {
  return HasRemainder(runtime, value, Value(int64_t{2}), Value(int64_t{1}));
}
Result IsEven(Runtime& runtime, const Value& value, const Value*) {
  return HasRemainder(runtime, value, Value(int64_t{2}), Value(int64_t{0}));
}
Result IsDivisibleBy(Runtime& runtime, const Value& value, const Value* divisor) {
  return HasRemainder(runtime, value, *divisor, Value(int64_t{0}));
}

template <Comparison kComparison>
Result Compares(Runtime& runtime, const Value& value, const Value* other) {
  return Compare(runtime, kComparison, value, *other);
}

Result IsFilter(Runtime&, const Value& value, const Value*) {
  return value.is_string() && FindFilter(value.text()) != nullptr;
}
Result IsTest(Runtime&, const Value& value, const Value*) {
  return value.is_string() && FindTest(value.text()) != nullptr;
}

// `is` of Python, for the values of which there is only one.
Result IsSameAs(Runtime&, const Value& value, const Value* other) {
  const bool singletons = (value.is_none() || value.As<bool>() != nullptr) &&
                          (other->is_none() || other->As<bool>() != nullptr);
  if (singletons) return value.TypeName() == other->TypeName() && Equal(value, *other);
  if (value.TypeName() != other->TypeName()) return false;
  return absl::InvalidArgumentError("the test 'sameas' is supported for none, true and false only");
}

const absl::flat_hash_map<absl::string_view, Test>& Tests() {
  static const auto* tests = new absl::flat_hash_map<absl::string_view, Test>{
      {"defined", {IsDefined}},
      {"undefined", {IsUndefined}},
      {"none", {IsNone}},
      {"string", {IsString}},
      {"mapping", {IsMapping}},
      {"number", {IsNumber}},
      {"integer", {IsInteger}},
      {"float", {IsFloat}},
      {"boolean", {IsBoolean}},
      {"true", {IsTrue}},
      {"false", {IsFalse}},
      {"escaped", {IsEscaped}},
      {"callable", {IsCallable}},
      {"iterable", {IsIterable}},
      {"sequence", {IsSequence}},
      {"lower", {IsLower}},
      {"upper", {IsUpper}},
      {"odd", {IsOdd}},
      {"even", {IsEven}},
      {"divisibleby", {IsDivisibleBy, true}},
      {"filter", {IsFilter}},
      {"test", {IsTest}},
      {"sameas", {IsSameAs, true}},
      {"in", {Compares<Comparison::kIn>, true}},
      {"eq", {Compares<Comparison::kEqual>, true}},
      {"equalto", {Compares<Comparison::kEqual>, true}},
      {"==", {Compares<Comparison::kEqual>, true}},
      {"ne", {Compares<Comparison::kNotEqual>, true}},
      {"!=", {Compares<Comparison::kNotEqual>, true}},
      {"lt", {Compares<Comparison::kLess>, true}},
      {"lessthan", {Compares<Comparison::kLess>, true}},
      {"<", {Compares<Comparison::kLess>, true}},
      {"le", {Compares<Comparison::kLessOrEqual>, true}},
      {"<=", {Compares<Comparison::kLessOrEqual>, true}},
      {"gt", {Compares<Comparison::kGreater>, true}},
      {"greaterthan", {Compares<Comparison::kGreater>, true}},
      {">", {Compares<Comparison::kGreater>, true}},
      {"ge", {Compares<Comparison::kGreaterOrEqual>, true}},
      {">=", {Compares<Comparison::kGreaterOrEqual>, true}},
  };
  return *tests;
}

}  // namespace

const Test* FindTest(absl::string_view name) {
  auto found = Tests().find(name);
  return found == Tests().end() ? nullptr : &found->second;
}

absl::StatusOr<bool> ApplyTest(Runtime& runtime, absl::string_view name, const Value& value,
                               const Arguments& arguments) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(1));
  const Test* test = FindTest(name);
  if (test == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the test '", name, "' is not supported"));
  }
  if (!test->takes_argument) {
    OCTAVO_RETURN_IF_ERROR(BindArguments(name, arguments, {}).status());
    return test->apply(runtime, value, nullptr);
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<const Value*> bound,
                          BindArguments(name, arguments, {"other"}, 1));
  return test->apply(runtime, value, bound[0]);
}

}  // namespace octavo::jinja
