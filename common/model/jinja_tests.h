#pragma once

// `value is test(arguments)`: Jinja's tests.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

struct Test {
  absl::StatusOr<bool> (*apply)(Runtime&, const Value& value, const Value* argument);
  bool takes_argument = false;
};

// Null when there is no such test here.
const Test* FindTest(absl::string_view name);

// Errors: InvalidArgument naming the test that is not supported, or what it reports.
absl::StatusOr<bool> ApplyTest(Runtime& runtime, absl::string_view name, const Value& value,
                               const Arguments& arguments);

}  // namespace octavo::jinja
