// Arithmetic, comparison and membership; subscripts and iteration are in jinja_access.cc.

#include "common/model/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/model/jinja_format.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_string_methods.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

constexpr absl::string_view kBinaryNames[] = {"+", "-", "*", "/", "//", "%", "**"};
constexpr absl::string_view kComparisonNames[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

absl::Status Overflow() {
  return absl::InvalidArgumentError("an integer result does not fit into 64 bits");
}
absl::Status DivisionByZero() { return absl::InvalidArgumentError("division by zero"); }

absl::StatusOr<Value> PowerOfIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value(result);
}

// Quotient towards minus infinity and the remainder with the divisor's sign. REQUIRES: b != 0 and
// no overflow.
int64_t FloorQuotient(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
int64_t FloorRemainder(int64_t a, int64_t b) {
  int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

absl::StatusOr<Value> BinaryOfIntegers(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOperator::kDivide:
      if (b == 0) return DivisionByZero();
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo:
      if (b == 0) return DivisionByZero();
      if (b == -1) {
        if (op == BinaryOperator::kModulo) return Value(int64_t{0});
        return Negate(Value(a));
      }
      return Value(op == BinaryOperator::kModulo ? FloorRemainder(a, b) : FloorQuotient(a, b));
    case BinaryOperator::kPower:
      return PowerOfIntegers(a, b);
  }
  return Overflow();
}

// Python's float floor division and modulo: the remainder takes the divisor's sign.
absl::StatusOr<Value> DivideFloats(BinaryOperator op, double a, double b) {
  if (b == 0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) return Value(a / b);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == BinaryOperator::kModulo) return Value(remainder);
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  double floor_quotient = std::floor(quotient);
  return Value(quotient - floor_quotient > 0.5 ? floor_quotient + 1.0 : floor_quotient);
}

absl::StatusOr<Value> PowerOfFloats(double a, double b) {
  if (a == 0 && b < 0) return DivisionByZero();
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return absl::InvalidArgumentError("a complex result is not supported");
  }
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return absl::InvalidArgumentError("a float result is too large");
  }
  return Value(result);
}

absl::StatusOr<Value> BinaryOfFloats(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value(a + b);
    case BinaryOperator::kSubtract:
      return Value(a - b);
    case BinaryOperator::kMultiply:
      return Value(a * b);
    case BinaryOperator::kPower:
      return PowerOfFloats(a, b);
    default:
      return DivideFloats(op, a, b);
  }
}

// A side that is not Markup is escaped when the other is.
absl::StatusOr<Value> AddTexts(Runtime& runtime, const Value& left, const Value& right) {
  if (!left.is_markup() && !right.is_markup()) {
    if (left.text().size() + right.text().size() > runtime.limits().max_string_bytes) {
      BoundedString bounded(runtime.limits().max_string_bytes);
      bounded.Append(left.text());
      bounded.Append(right.text());
      return bounded.status();
    }
    return runtime.NewString(absl::StrCat(left.text(), right.text()));
  }
  std::string a = left.is_markup() ? left.text() : EscapeHtml(left.text());
  std::string b = right.is_markup() ? right.text() : EscapeHtml(right.text());
  return runtime.NewString(a + b, /*is_markup=*/true);
}

absl::StatusOr<Value> AddSequences(Runtime& runtime, const Sequence& a, const Sequence& b) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * (a.items.size() + b.items.size())));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return runtime.NewSequence(std::move(items), a.kind);
}

bool IsListOrTuple(const Value& value) {
  const Sequence* sequence = value.sequence();
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
}

absl::StatusOr<Value> Repeat(Runtime& runtime, const Value& value, int64_t count) {
  if (value.is_string()) {
    BoundedString repeated(runtime.limits().max_string_bytes);
    repeated.AppendRepeated(value.text(), count);
    OCTAVO_RETURN_IF_ERROR(repeated.status());
    return runtime.NewString(repeated.Take(), value.is_markup());
  }
  const Sequence& sequence = *value.sequence();
  std::vector<Value> items;
  if (!sequence.items.empty()) {
    for (int64_t i = 0; i < count; ++i) {
      OCTAVO_RETURN_IF_ERROR(runtime.Charge(1 + kElementCost * sequence.items.size()));
      items.insert(items.end(), sequence.items.begin(), sequence.items.end());
    }
  }
  return runtime.NewSequence(std::move(items), sequence.kind);
}

// -1, 0, 1; or nullopt when unordered (a NaN).
std::optional<int> OrderNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  // As long double both 64-bit integers and doubles are exact.
  auto exact = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.integer())
                           : static_cast<long double>(v.number());
  };
  long double x = exact(a), y = exact(b);
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y ? 1 : 0;
}

// The order of two values as far as Python has one.
absl::StatusOr<std::optional<int>> Order(Runtime& runtime, absl::string_view name, const Value& a,
                                         const Value& b) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(1 + std::min(a.weight(), b.weight())));
  if (a.is_number() && b.is_number()) return OrderNumbers(a, b);
  if (a.is_string() && b.is_string()) {
    int order = a.text().compare(b.text());  // UTF-8 sorts as code points do
    return std::optional<int>(order < 0 ? -1 : order > 0 ? 1 : 0);
  }
  if (!IsListOrTuple(a) || !IsListOrTuple(b) || a.sequence()->kind != b.sequence()->kind) {
    return TypeMismatch(name, a, b);
  }
  const std::vector<Value>& left = a.sequence()->items;
  const std::vector<Value>& right = b.sequence()->items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!Equal(left[i], right[i])) return Order(runtime, name, left[i], right[i]);
  }
  return std::optional<int>(left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0);
}

absl::StatusOr<bool> ContainedInSequence(Runtime& runtime, Sequence& sequence, const Value& item) {
  bool is_generator = sequence.kind == SequenceKind::kGenerator;
  for (size_t i = sequence.position; i < sequence.items.size(); ++i) {
    if (is_generator) sequence.position = i + 1;
    OCTAVO_ASSIGN_OR_RETURN(bool equal, EqualCharged(runtime, sequence.items[i], item));
    if (equal) return true;
  }
  return false;
}

}  // namespace

absl::Status TypeMismatch(absl::string_view operation, const Value& left, const Value& right) {
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand types for ", operation, ": '",
                                                 left.TypeName(), "' and '", right.TypeName(),
                                                 "'"));
}

absl::StatusOr<Value> ApplyBinary(Runtime& runtime, BinaryOperator op, const Value& left,
                                  const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) {
      return BinaryOfIntegers(op, left.integer(), right.integer());
    }
    return BinaryOfFloats(op, left.number(), right.number());
  }
  if (op == BinaryOperator::kAdd) {
    if (left.is_string() && right.is_string()) return AddTexts(runtime, left, right);
    if (IsListOrTuple(left) && IsListOrTuple(right) &&
        left.sequence()->kind == right.sequence()->kind) {
      return AddSequences(runtime, *left.sequence(), *right.sequence());
    }
  }
  if (op == BinaryOperator::kMultiply) {
    if ((left.is_string() || IsListOrTuple(left)) && right.is_integral()) {
      return Repeat(runtime, left, right.integer());
    }
    if ((right.is_string() || IsListOrTuple(right)) && left.is_integral()) {
      return Repeat(runtime, right, left.integer());
    }
  }
  if (op == BinaryOperator::kModulo && left.is_string()) {
    return FormatPercent(runtime, left, right);
  }
  return TypeMismatch(kBinaryNames[static_cast<int>(op)], left, right);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.is_integral()) {
    if (value.integer() == std::numeric_limits<int64_t>::min()) return Overflow();
    return Value(-value.integer());
  }
  if (value.is_number()) return Value(-value.number());
  if (value.is_undefined()) return UndefinedError(value);
  return absl::InvalidArgumentError(absl::StrCat("a ", value.TypeName(), " cannot be negated"));
}

absl::StatusOr<Value> Plus(const Value& value) {
  if (value.is_integral()) return Value(value.integer());
  if (value.is_number()) return value;
  if (value.is_undefined()) return UndefinedError(value);
  return absl::InvalidArgumentError(absl::StrCat("a ", value.TypeName(), " has no unary plus"));
}

absl::StatusOr<bool> EqualCharged(Runtime& runtime, const Value& a, const Value& b) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(1 + std::min(a.weight(), b.weight())));
  return Equal(a, b);
}

absl::StatusOr<bool> Less(Runtime& runtime, const Value& a, const Value& b) {
  return Compare(runtime, Comparison::kLess, a, b);
}

absl::StatusOr<bool> Compare(Runtime& runtime, Comparison op, const Value& left,
                             const Value& right) {
  if (op == Comparison::kEqual || op == Comparison::kNotEqual) {
    OCTAVO_ASSIGN_OR_RETURN(bool equal, EqualCharged(runtime, left, right));
    return equal == (op == Comparison::kEqual);
  }
  if (op == Comparison::kIn || op == Comparison::kNotIn) {
    OCTAVO_ASSIGN_OR_RETURN(bool contained, Contains(runtime, right, left));
    return contained == (op == Comparison::kIn);
  }
  OCTAVO_ASSIGN_OR_RETURN(std::optional<int> order,
                          Order(runtime, kComparisonNames[static_cast<int>(op)], left, right));
  if (!order.has_value()) return false;
  switch (op) {
    case Comparison::kLess:
      return *order < 0;
    case Comparison::kLessOrEqual:
      return *order <= 0;
    case Comparison::kGreater:
      return *order > 0;
    default:
      return *order >= 0;
  }
}

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'in <string>' requires string as left operand, not ", item.TypeName()));
    }
    OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, container.text(), item.text()));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(dict->FindCost(item)));
    if (!IsHashable(item)) {
      return absl::InvalidArgumentError(absl::StrCat("unhashable type: '", item.TypeName(), "'"));
    }
    return dict->Find(item) != nullptr;
  }
  if (Sequence* sequence = container.sequence()) {
    return ContainedInSequence(runtime, *sequence, item);
  }
  if (container.is_undefined()) return false;
  return absl::InvalidArgumentError(
      absl::StrCat("argument of type '", container.TypeName(), "' is not iterable"));
}

}  // namespace octavo::jinja
