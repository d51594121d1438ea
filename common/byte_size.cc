#include "common/byte_size.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo {
namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},
                           {"b", 1},
                           {"kb", 1e3},
                           {"mb", 1e6},
                           {"gb", 1e9},
                           {"tb", 1e12},
                           {"kib", 1024},
                           {"mib", 1048576.0},
                           {"gib", 1073741824.0},
                           {"tib", 1099511627776.0}};
constexpr double kMaxBytes = 9007199254740992.0;  // 2^53: every whole number below is a double

}  // namespace

absl::StatusOr<ByteSize> ParseByteSize(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t end = trimmed.find_first_not_of("0123456789.");
  const absl::string_view digits = trimmed.substr(0, end);
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(
      end == absl::string_view::npos ? absl::string_view() : trimmed.substr(end)));
  double number = 0;
  if (!digits.empty() && absl::SimpleAtod(digits, &number)) {
    for (const Unit& known : kUnits) {
      const double bytes = std::floor(number * known.bytes);
      if (unit == known.name && bytes <= kMaxBytes) return ByteSize{static_cast<uint64_t>(bytes)};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is no size; write a number of bytes up to 8192TiB, or one with a unit: ",
      "80GiB, 512MB"));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kNames[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " bytes")
                   : absl::StrFormat("%.2f %s", value, kNames[unit]);
}

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  const absl::StatusOr<ByteSize> parsed = ParseByteSize(text);
  if (!parsed.ok()) {
    *error = std::string(parsed.status().message());
    return false;
  }
  *size = *parsed;
  return true;
}

std::string AbslUnparseFlag(ByteSize size) { return absl::StrCat(size.bytes); }

}  // namespace octavo
