#pragma once

// Python's int(text) and float(text).

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::jinja {

// int(text, base): white space around, a sign, single underscores between digits, the base's own
// prefix. nullopt where Python raises ValueError. Errors: InvalidArgument for a number of more than
// 64 bits. REQUIRES: 2 <= base <= 36.
absl::StatusOr<std::optional<int64_t>> ParseInteger(absl::string_view text, int base);

// float(text): as above, with fraction and exponent; inf, infinity, nan. nullopt where Python
// raises ValueError.
std::optional<double> ParseFloat(absl::string_view text);

}  // namespace octavo::jinja
