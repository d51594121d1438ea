// format % values: the first half of jinja_format.h.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/jinja_format.h"
#include "common/model/jinja_layout.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime),
        format_(format.text()),
        values_(values),
        out_(runtime.limits().max_string_bytes) {
    const Sequence* sequence = values.sequence();
    if (sequence != nullptr && sequence->kind == SequenceKind::kTuple) tuple_ = sequence;
  }

  absl::StatusOr<Value> Run() {
    while (at_ < format_.size()) {
      size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.Append(format_.substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) OCTAVO_RETURN_IF_ERROR(Convert());
      OCTAVO_RETURN_IF_ERROR(out_.status());
    }
    const bool all_used = tuple_ != nullptr ? used_ == tuple_->items.size()
                                            : used_ == 1 || values_.dict() || values_.sequence() ||
                                                  values_.is_undefined();
    if (!all_used) {
      return absl::InvalidArgumentError("not all arguments converted during string formatting");
    }
    return runtime_.NewString(out_.Take());
  }

 private:
  absl::StatusOr<Value> Next() {
    if (tuple_ != nullptr && used_ < tuple_->items.size()) return tuple_->items[used_++];
    if (tuple_ == nullptr && used_ == 0) {
      ++used_;
      return values_;
    }
    return absl::InvalidArgumentError("not enough arguments for format string");
  }

  absl::StatusOr<std::optional<Value>> ReadKey() {
    if (at_ >= format_.size() || format_[at_] != '(') return std::optional<Value>();
    size_t end = format_.find(')', at_);
    if (end == absl::string_view::npos) return absl::InvalidArgumentError("incomplete format key");
    absl::string_view key = format_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (values_.dict() == nullptr) return absl::InvalidArgumentError("format requires a mapping");
    const Value* found = values_.dict()->FindText(key);
    if (found == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("the format key '", key, "' is missing"));
    }
    return std::optional<Value>(*found);
  }

  // At a '%'.
  absl::Status Convert() {
    ++at_;
    OCTAVO_ASSIGN_OR_RETURN(std::optional<Value> keyed, ReadKey());
    Layout layout;
    bool has_zeros = false;
    for (; at_ < format_.size(); ++at_) {
      char c = format_[at_];
      if (c == '-')
        layout.align = '<';
      else if (c == '+')
        layout.sign = '+';
      else if (c == ' ' && layout.sign != '+')
        layout.sign = ' ';
      else if (c == '0')
        has_zeros = true;
      else if (c == '#')
        layout.has_prefix = true;
      else if (c != ' ')
        break;
    }
    layout.width = ReadNumber(format_, &at_).value_or(0);
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      layout.precision = ReadNumber(format_, &at_).value_or(0);
    }
    if (at_ >= format_.size()) return absl::InvalidArgumentError("incomplete format");
    layout.type = format_[at_++];
    if (layout.type == '%') {
      out_.Append("%");
      return absl::OkStatus();
    }
    Value value;
    if (keyed.has_value()) {
      value = *keyed;
    } else {
      OCTAVO_ASSIGN_OR_RETURN(value, Next());
    }
    if (has_zeros && layout.align == '\0' && !HasType(layout, "sr")) {
      layout.fill = "0";
      layout.align = '=';
    }
    OCTAVO_ASSIGN_OR_RETURN(Value text, Format(value, layout));
    out_.Append(text.text());
    return absl::OkStatus();
  }

  absl::StatusOr<Value> Format(const Value& value, Layout& layout) {
    if (layout.type == 's' || layout.type == 'r') {
      OCTAVO_ASSIGN_OR_RETURN(
          std::string text, layout.type == 's' ? ToText(runtime_, value) : ToRepr(runtime_, value));
      return LayOutText(runtime_, text, layout, '>');
    }
    if (value.is_undefined()) return UndefinedError(value);
    const bool is_integer_type = HasType(layout, "diuxXo");
    const bool is_float_type = HasType(layout, "fFeEgG");
    if (!is_integer_type && !is_float_type) {
      return FormattingNotSupported(absl::StrCat("%", std::string(1, layout.type)));
    }
    if (!value.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat("%", std::string(1, layout.type),
                                                     " format: a number is required, not ",
                                                     value.TypeName()));
    }
    if (is_float_type) {
      if (layout.has_prefix) return FormattingNotSupported("the # flag on floats");
      return LayOutFloat(runtime_, value.number(), layout);
    }
    if (layout.precision.has_value()) return FormattingNotSupported("a precision on integers");
    if (value.is_integral()) return LayOutInteger(runtime_, value.integer(), layout);
    const double number = value.number();
    if (!HasType(layout, "diu") || !(std::fabs(number) < 0x1p63)) {
      return absl::InvalidArgumentError(
          absl::StrCat("%", std::string(1, layout.type), " format: an integer is required"));
    }
    return LayOutInteger(runtime_, static_cast<int64_t>(number), layout);
  }

  Runtime& runtime_;
  absl::string_view format_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  size_t used_ = 0;
  size_t at_ = 0;
  BoundedString out_;
};

}  // namespace

absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values) {
  if (format.is_markup()) return FormattingNotSupported("a string marked safe");
  return PercentFormatter(runtime, format, values).Run();
}

}  // namespace octavo::jinja
