#include "common/model/jinja_layout.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

constexpr int64_t kMaxPrecision = 100;

absl::StatusOr<Value> Pad(Runtime& runtime, absl::string_view sign, absl::string_view body,
                          const Layout& layout, char default_align) {
  char align = layout.align != '\0' ? layout.align : default_align;
  int64_t missing = std::max<int64_t>(0, layout.width - TextLength(sign) - TextLength(body));
  int64_t before = align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
  BoundedString out(runtime.limits().max_string_bytes);
  out.AppendRepeated(layout.fill, before);
  out.Append(sign);
  if (align == '=') out.AppendRepeated(layout.fill, missing);
  out.Append(body);
  if (align == '<' || align == '^') out.AppendRepeated(layout.fill, missing - before);
  OCTAVO_RETURN_IF_ERROR(out.status());
  return runtime.NewString(out.Take());
}

std::string SignOf(bool is_negative, const Layout& layout) {
  if (is_negative) return "-";
  return layout.sign == '-' ? "" : std::string(1, layout.sign);
}

// Commas between groups of three, before a fraction if there is one.
std::string WithCommas(std::string digits) {
  size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

bool HasType(const Layout& layout, absl::string_view types) {
  return layout.type != '\0' && types.find(layout.type) != absl::string_view::npos;
}

absl::Status FormattingNotSupported(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("formatting with ", what, " is not supported"));
}

std::optional<int64_t> ReadNumber(absl::string_view text, size_t* at) {
  size_t begin = *at;
  int64_t number = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    number = std::min<int64_t>(number * 10 + (text[*at] - '0'), int64_t{1} << 40);
    ++*at;
  }
  return *at == begin ? std::nullopt : std::optional<int64_t>(number);
}

absl::StatusOr<Value> LayOutText(Runtime& runtime, absl::string_view text, const Layout& layout,
                                 char default_align) {
  if (layout.align == '=') return absl::InvalidArgumentError("'=' alignment needs a number");
  if (layout.precision.has_value()) text = text.substr(0, ByteOffset(text, *layout.precision));
  return Pad(runtime, "", text, layout, default_align);
}

absl::StatusOr<Value> LayOutInteger(Runtime& runtime, int64_t number, const Layout& layout) {
  uint64_t magnitude =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::string sign = SignOf(number < 0, layout);
  std::string digits;
  std::string prefix;
  switch (layout.type) {
    case 'x':
      digits = absl::StrFormat("%x", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = absl::StrFormat("%X", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = absl::StrFormat("%o", magnitude);
      prefix = "0o";
      break;
    case 'b':
      do {
        digits.insert(digits.begin(), static_cast<char>('0' + (magnitude & 1)));
        magnitude >>= 1;
      } while (magnitude != 0);
      prefix = "0b";
      break;
    default:
      digits = absl::StrCat(magnitude);
  }
  if (layout.has_prefix) sign += prefix;
  if (layout.has_commas) {
    if (!prefix.empty()) return absl::InvalidArgumentError("',' does not go with this conversion");
    if (layout.align == '=' && layout.fill == "0")
      return FormattingNotSupported("',' and leading zeros");
    digits = WithCommas(digits);
  }
  return Pad(runtime, sign, digits, layout, '>');
}

absl::StatusOr<Value> LayOutFloat(Runtime& runtime, double number, const Layout& layout) {
  bool is_percent = layout.type == '%';
  double magnitude = std::fabs(is_percent ? number * 100 : number);
  int precision = static_cast<int>(layout.precision.value_or(6));
  if (layout.precision.value_or(0) > kMaxPrecision) {
    return FormattingNotSupported(absl::StrCat("a precision above ", kMaxPrecision));
  }
  std::string digits;
  switch (is_percent ? 'f' : layout.type) {
    case 'f':
    case 'F':
      digits = absl::StrFormat("%.*f", precision, magnitude);
      break;
    case 'e':
      digits = absl::StrFormat("%.*e", precision, magnitude);
      break;
    case 'E':
      digits = absl::StrFormat("%.*E", precision, magnitude);
      break;
    case 'g':
      digits = absl::StrFormat("%.*g", precision, magnitude);
      break;
    case 'G':
      digits = absl::StrFormat("%.*G", precision, magnitude);
      break;
    default:
      if (layout.precision.has_value())
        return FormattingNotSupported("a precision without a conversion");
      digits = FloatRepr(magnitude);
  }
  if (layout.has_commas) {
    if (layout.align == '=' && layout.fill == "0")
      return FormattingNotSupported("',' and leading zeros");
    digits = WithCommas(digits);
  }
  if (is_percent) digits += '%';
  return Pad(runtime, SignOf(std::signbit(number) && !std::isnan(number), layout), digits, layout,
             '>');
}

}  // namespace octavo::jinja
