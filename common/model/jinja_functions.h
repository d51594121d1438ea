#pragma once

// The global functions of a template: range, dict, namespace, raise_exception, strftime_now.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

// The global of this name, or undefined. Errors: InvalidArgument for Jinja's globals that are not
// supported (cycler, joiner, lipsum).
absl::StatusOr<Value> FindGlobal(const Runtime& runtime, absl::string_view name);

absl::StatusOr<Value> CallFunction(Runtime& runtime, Function function, const Arguments& arguments);

// Whether an error is the template's own, from raise_exception: its message is for the caller as it
// stands.
bool IsRaised(const absl::Status& status);

// Python's strftime of a time without zone, in the C locale. Errors: InvalidArgument for directives
// that are not supported and for formats of more than 256 bytes.
absl::StatusOr<std::string> FormatTime(absl::string_view format, absl::CivilSecond time);

}  // namespace octavo::jinja
