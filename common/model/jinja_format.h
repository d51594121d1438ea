#pragma once

// Python's two ways to format: "%s" % values and "{}".format(values).

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

// format % values: conversions s, r, d, i, u, f, F, e, E, g, G, x, X, o and %%, with flags, width,
// precision and %(key). `values` is a tuple, a dict, or the one value. Errors: InvalidArgument for
// too few or too many values, wrong types, and conversions that are not supported. REQUIRES: format
// is a string.
absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values);

// format.format(arguments): {}, {0}, {name}, with .attribute and [item], !r and !s, and
// `[[fill]align][sign][0][width][,][.precision] [type]` for strings, integers and floats. Errors:
// InvalidArgument, also for what is not supported.
absl::StatusOr<Value> FormatBraces(Runtime& runtime, absl::string_view format,
                                   const Arguments& arguments);

}  // namespace octavo::jinja
