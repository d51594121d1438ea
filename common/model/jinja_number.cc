#include "common/model/jinja_number.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/model/jinja_text.h"

namespace octavo::jinja {
namespace {

bool IsAsciiDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

int DigitValue(char c) {
  if (IsAsciiDigit(c)) return c - '0';
  if (absl::ascii_isalpha(static_cast<unsigned char>(c))) return absl::ascii_tolower(c) - 'a' + 10;
  return 36;
}

absl::string_view Stripped(absl::string_view text) {
  return StripLeft(StripRight(text, nullptr), nullptr);
}

// Consumes a sign; true for minus.
bool TakeSign(absl::string_view* text) {
  if (text->empty() || (text->front() != '-' && text->front() != '+')) return false;
  const bool is_negative = text->front() == '-';
  text->remove_prefix(1);
  return is_negative;
}

// Consumes digits with single underscores between them into `out`; false when there are none.
bool TakeDigits(absl::string_view* text, std::string* out) {
  const size_t before = out->size();
  while (!text->empty()) {
    if (IsAsciiDigit(text->front())) {
      out->push_back(text->front());
      text->remove_prefix(1);
    } else if (text->front() == '_' && out->size() > before && text->size() > 1 &&
               IsAsciiDigit((*text)[1])) {
      text->remove_prefix(1);
    } else {
      break;
    }
  }
  return out->size() > before;
}

// "0x" before a hexadecimal number, and so on.
void SkipPrefix(absl::string_view* text, int base) {
  const char letter = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (letter == '\0' || text->size() < 3 || text->front() != '0') return;
  if (absl::ascii_tolower((*text)[1]) != letter) return;
  text->remove_prefix((*text)[2] == '_' ? 3 : 2);
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> ParseInteger(absl::string_view text, int base) {
  text = Stripped(text);
  const bool is_negative = TakeSign(&text);
  SkipPrefix(&text, base);
  if (text.empty()) return std::optional<int64_t>();
  int64_t number = 0;
  bool overflows = false;
  bool after_digit = false;
  for (char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = DigitValue(c);
    if (digit >= base) return std::optional<int64_t>();
    overflows = overflows || __builtin_mul_overflow(number, int64_t{base}, &number) ||
                __builtin_sub_overflow(number, int64_t{digit}, &number);
    after_digit = true;
  }
  if (!after_digit) return std::optional<int64_t>();
  // Kept negative, where one number more fits.
  if (overflows || (!is_negative && number == std::numeric_limits<int64_t>::min())) {
    return absl::InvalidArgumentError("an integer does not fit into 64 bits");
  }
  return std::optional<int64_t>(is_negative ? number : -number);
}

std::optional<double> ParseFloat(absl::string_view text) {
  text = Stripped(text);
  const bool is_negative = TakeSign(&text);
  const double sign = is_negative ? -1.0 : 1.0;
  if (absl::EqualsIgnoreCase(text, "inf") || absl::EqualsIgnoreCase(text, "infinity")) {
    return sign * std::numeric_limits<double>::infinity();
  }
  if (absl::EqualsIgnoreCase(text, "nan")) return std::numeric_limits<double>::quiet_NaN();
  std::string digits;
  const bool has_whole = TakeDigits(&text, &digits);
  bool has_fraction = false;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    digits.push_back('.');
    has_fraction = TakeDigits(&text, &digits);
  }
  if (!has_whole && !has_fraction) return std::nullopt;
  if (!text.empty() && (text.front() == 'e' || text.front() == 'E')) {
    text.remove_prefix(1);
    digits.push_back('e');
    digits.push_back(TakeSign(&text) ? '-' : '+');
    if (!TakeDigits(&text, &digits)) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return sign * std::strtod(digits.c_str(), nullptr);
}

}  // namespace octavo::jinja
