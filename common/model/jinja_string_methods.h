#pragma once

// The methods of str, all but format() (jinja_format.h).

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

// Whether Python's str has a method of this name, supported here or not.
bool IsStringMethod(absl::string_view name);
// Whether the method does the same on a string marked safe as on any other, its result's mark
// aside.
bool IsPlainOnMarkup(absl::string_view name);

// REQUIRES: the receiver is a string.
absl::StatusOr<Value> CallStringMethod(Runtime& runtime, const BoundMethod& method,
                                       const Arguments& arguments);

// str.replace(old, new, count); all when count is negative. Also the filter.
absl::StatusOr<Value> ReplaceText(Runtime& runtime, absl::string_view text,
                                  absl::string_view old_text, absl::string_view new_text,
                                  int64_t count);
// str.join.
absl::StatusOr<Value> JoinTexts(Runtime& runtime, absl::string_view separator,
                                const std::vector<std::string>& parts);
// str.center(width).
absl::StatusOr<Value> CenterText(Runtime& runtime, absl::string_view text, int64_t width);

// Charges for a search of `needle` in `haystack`, the worst case of comparing at each place
// included.
absl::Status ChargeSearch(Runtime& runtime, absl::string_view haystack, absl::string_view needle);

}  // namespace octavo::jinja
