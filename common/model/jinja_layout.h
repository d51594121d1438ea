#pragma once

// How one value is laid out in a field: what "%5.2f" and "{:>5.2f}" have in common.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_runtime.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

struct Layout {
  absl::string_view fill = " ";  // one character; borrowed
  char align = '\0';  // '<', '>', '^', '=' (padding between sign and digits); 0: as the type likes
  char sign = '-';    // '+', ' ' or '-'
  bool has_prefix = false;  // 0x, 0o, 0b
  bool has_commas = false;
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';  // the conversion: d, f, x, ...; 0 without one
};

// Whether layout.type is one of `types`.
bool HasType(const Layout& layout, absl::string_view types);

// The field. Errors: InvalidArgument for what does not go together or is not supported;
// ResourceExhausted past the limits.
absl::StatusOr<Value> LayOutText(Runtime& runtime, absl::string_view text, const Layout& layout,
                                 char default_align);
absl::StatusOr<Value> LayOutInteger(Runtime& runtime, int64_t number, const Layout& layout);
absl::StatusOr<Value> LayOutFloat(Runtime& runtime, double number, const Layout& layout);

// Digits at `*at`, which moves behind them; nullopt when there are none. Numbers beyond any use are
// cut to one that the limits refuse.
std::optional<int64_t> ReadNumber(absl::string_view text, size_t* at);

// "formatting with WHAT is not supported".
absl::Status FormattingNotSupported(absl::string_view what);

}  // namespace octavo::jinja
