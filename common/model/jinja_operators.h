#pragma once

// What the operators of an expression do with values: arithmetic, comparison, membership,
// subscripts, attributes, iteration. Python's rules on 64-bit integers; overflow and every
// TypeError of Python are InvalidArgument.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

enum class BinaryOperator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

// `%` on a string formats (jinja_format.h).
absl::StatusOr<Value> ApplyBinary(Runtime& runtime, BinaryOperator op, const Value& left,
                                  const Value& right);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);
absl::StatusOr<bool> Compare(Runtime& runtime, Comparison op, const Value& left,
                             const Value& right);
// a == b with its cost charged.
absl::StatusOr<bool> EqualCharged(Runtime& runtime, const Value& a, const Value& b);
// a < b, for sorting as well.
absl::StatusOr<bool> Less(Runtime& runtime, const Value& a, const Value& b);
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

// object[key], Jinja's way: what is not there is undefined, and a string key falls back to the
// attribute.
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);
// object.name: attributes (methods) first, then the key. Loop and namespace attributes included.
absl::StatusOr<Value> GetAttribute(const Value& object, absl::string_view name);
// object[start:stop:step]; absent bounds are null.
absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& object, const Value* start,
                               const Value* stop, const Value* step);

// The items that iterating over `value` gives: a dict's keys, a string's characters, what is left
// of a generator (which is then empty), nothing for undefined. Charges one unit an item.
absl::StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);
// len(value). Errors: InvalidArgument when it has none.
absl::StatusOr<int64_t> Length(const Value& value);

// "unsupported operand type(s) ...": for the callers that dispatch on types.
absl::Status TypeMismatch(absl::string_view operation, const Value& left, const Value& right);

// jinja_loop_attributes: loop.index and the like; nullopt when a loop has no such attribute.
std::optional<Value> LoopAttribute(const LoopState& loop, absl::string_view name);

}  // namespace octavo::jinja
