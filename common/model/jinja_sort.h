#pragma once

// Sorting values by keys, where a comparison can fail.

#include <vector>

#include "absl/status/statusor.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

struct Keyed {
  Value key;
  Value item;
};

// The items as a list, in the order of their keys. A merge sort: stable, stable as well when
// reversed, and safe whatever the comparisons say (a NaN is in no order). Errors: that of the first
// comparison that fails.
absl::StatusOr<Value> Sorted(Runtime& runtime, std::vector<Keyed> keyed, bool is_reversed);

}  // namespace octavo::jinja
