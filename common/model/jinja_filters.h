#pragma once

// `value | filter(arguments)`: Jinja's filters, and `tojson` as Hugging Face's environment replaces
// it.
//
// Supported: abs, batch, capitalize, center, count, d, default, dictsort, e, escape, first, float,
// format, indent, int, items, join, last, length, list, lower, map, max, min, reject, rejectattr,
// replace, reverse, round, safe, select, selectattr, sort, string, sum, title, tojson, trim,
// unique, upper.

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

struct Filter {
  // `bound` follows `parameters`; null where none was given.
  using Apply = absl::StatusOr<Value> (*)(Runtime&, const Value& input,
                                          const std::vector<const Value*>& bound);
  // For the filters that take any arguments: map, select, format and the like.
  using ApplyRaw = absl::StatusOr<Value> (*)(Runtime&, const Value& input, const Arguments&);

  Apply apply = nullptr;
  std::vector<absl::string_view> parameters;
  size_t required = 0;
  ApplyRaw apply_raw = nullptr;
};

using FilterTable = absl::flat_hash_map<absl::string_view, Filter>;

// Null when there is no such filter here.
const Filter* FindFilter(absl::string_view name);

// Errors: InvalidArgument naming the filter that is not supported, or what it reports.
absl::StatusOr<Value> ApplyFilter(Runtime& runtime, absl::string_view name, const Value& input,
                                  const Arguments& arguments);

// The two halves of the table, by what they are mostly applied to.
const FilterTable& ScalarFilters();
const FilterTable& SequenceFilters();

}  // namespace octavo::jinja
