#pragma once

// The methods of Python's str, dict, list and tuple that a template may call.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

// The arguments of a call, of a filter or of a test, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// `arguments` sorted into the parameters of `callee`, in order; null where none was given.
// `required` parameters must be there. The pointers borrow from `arguments`. Errors:
// InvalidArgument naming the callee and what is missing, unknown, doubled or too much.
absl::StatusOr<std::vector<const Value*>> BindArguments(
    absl::string_view callee, const Arguments& arguments,
    std::span<const absl::string_view> parameters, size_t required = 0);
inline absl::StatusOr<std::vector<const Value*>> BindArguments(
    absl::string_view callee, const Arguments& arguments,
    std::initializer_list<absl::string_view> parameters, size_t required = 0) {
  return BindArguments(callee, arguments,
                       std::span<const absl::string_view>(parameters.begin(), parameters.size()),
                       required);
}

enum class MethodStatus : uint8_t {
  kNone,     // the type has no method of that name
  kMethod,   // it has; calling one that is not supported is an error that names it
  kMutator,  // it has, and the sandbox forbids it
};
MethodStatus FindMethod(const Value& receiver, absl::string_view name);

absl::StatusOr<Value> CallMethod(Runtime& runtime, const BoundMethod& method,
                                 const Arguments& arguments);

}  // namespace octavo::jinja
