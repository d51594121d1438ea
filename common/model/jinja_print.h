#pragma once

// Values as text: Python's str(), repr() and json.dumps(), and JSON coming in.

#include <string>

#include "absl/status/statusor.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"
#include "nlohmann/json.hpp"

namespace octavo::jinja {

// str(value); what `{{ value }}` prints. Errors: ResourceExhausted past the limits; InvalidArgument
// for what Python would print with a memory address (functions, macros, generators).
absl::StatusOr<std::string> ToText(Runtime& runtime, const Value& value);
// repr(value).
absl::StatusOr<std::string> ToRepr(Runtime& runtime, const Value& value);
// repr(float): the shortest digits that read back as the same number, with an exponent below 1e-4
// and from 1e16.
std::string FloatRepr(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool is_indented = false;
  std::string indent;  // one level's, when is_indented
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps(value). Errors: InvalidArgument naming the type that JSON has no form for.
absl::StatusOr<Value> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

// Errors: InvalidArgument for an integer of more than 64 signed bits, invalid UTF-8, or too many
// levels.
absl::StatusOr<Value> FromJson(Runtime& runtime, const nlohmann::ordered_json& json);

}  // namespace octavo::jinja
