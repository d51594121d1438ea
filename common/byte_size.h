#pragma once

// Sizes of memory as people write them. Pure functions.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo {

// A number of bytes as a flag takes it: "80GiB", "1.5GiB", "512MB", "4096". AbslParseFlag makes it
// a flag's type.
struct ByteSize {
  uint64_t bytes = 0;
  friend bool operator==(const ByteSize&, const ByteSize&) = default;
};

// Units: none or B, kB, MB, GB, TB (powers of 1,000), KiB, MiB, GiB, TiB (of 1,024); case counts
// for nothing. InvalidArgument naming the text and what it must be; fractions round down.
absl::StatusOr<ByteSize> ParseByteSize(absl::string_view text);

// "2.50 GiB", "512 bytes": the largest binary unit that gives at least 1.
std::string FormatBytes(uint64_t bytes);

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

}  // namespace octavo
