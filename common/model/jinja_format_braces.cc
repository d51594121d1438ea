// format.format(...): the second half of jinja_format.h.

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_format.h"
#include "common/model/jinja_layout.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

absl::StatusOr<Layout> ParseLayout(absl::string_view spec) {
  Layout layout;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t at = 0;
  if (!spec.empty()) {
    size_t second = 0;
    NextCodePoint(spec, &second);
    if (second < spec.size() && is_align(spec[second])) {
      layout.fill = spec.substr(0, second);
      layout.align = spec[second];
      at = second + 1;
    } else if (is_align(spec[0])) {
      layout.align = spec[0];
      at = 1;
    }
  }
  if (at < spec.size() && (spec[at] == '+' || spec[at] == '-' || spec[at] == ' ')) {
    layout.sign = spec[at++];
  }
  if (at < spec.size() && spec[at] == '#') {
    layout.has_prefix = true;
    ++at;
  }
  if (at < spec.size() && spec[at] == '0' && layout.align == '\0') {
    layout.fill = "0";
    layout.align = '=';
    ++at;
  }
  layout.width = ReadNumber(spec, &at).value_or(0);
  if (at < spec.size() && spec[at] == ',') {
    layout.has_commas = true;
    ++at;
  }
  if (at < spec.size() && spec[at] == '.') {
    ++at;
    layout.precision = ReadNumber(spec, &at);
    if (!layout.precision.has_value()) {
      return absl::InvalidArgumentError("a format specifier is missing its precision");
    }
  }
  if (at < spec.size()) layout.type = spec[at++];
  if (at != spec.size()) return FormattingNotSupported(absl::StrCat("the specifier '", spec, "'"));
  return layout;
}

absl::StatusOr<Value> FormatOne(Runtime& runtime, const Value& value, absl::string_view spec) {
  if (spec.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, value));
    return runtime.NewString(std::move(text));
  }
  OCTAVO_ASSIGN_OR_RETURN(Layout layout, ParseLayout(spec));
  const absl::string_view type(&layout.type, layout.type == '\0' ? 0 : 1);
  if (value.is_string()) {
    if (!type.empty() && type != "s") {
      return absl::InvalidArgumentError(
          absl::StrCat("the format '", spec, "' does not fit a string"));
    }
    if (layout.fill == "0" || layout.has_commas || layout.has_prefix || layout.sign != '-') {
      return FormattingNotSupported(absl::StrCat("the specifier '", spec, "' on a string"));
    }
    return LayOutText(runtime, value.text(), layout, '<');
  }
  if (value.is_number() && (type.empty() || HasType(layout, "dxXobfFeEgG%"))) {
    const bool wants_float = HasType(layout, "fFeEgG%");
    if (value.is_integral() && !wants_float) {
      if (layout.precision.has_value()) {
        return absl::InvalidArgumentError("precision is not allowed with integers");
      }
      return LayOutInteger(runtime, value.integer(), layout);
    }
    if ((wants_float || type.empty()) && !layout.has_prefix) {
      return LayOutFloat(runtime, value.number(), layout);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the format '", spec, "' does not fit a ", value.TypeName()));
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, absl::string_view format, const Arguments& arguments)
      : runtime_(runtime),
        format_(format),
        arguments_(arguments),
        out_(runtime.limits().max_string_bytes) {}

  absl::StatusOr<Value> Run() {
    for (size_t at = 0; at < format_.size();) {
      const char c = format_[at];
      const bool is_doubled = at + 1 < format_.size() && format_[at + 1] == c;
      if (c != '{' && c != '}') {
        const size_t end = std::min(format_.find_first_of("{}", at), format_.size());
        out_.Append(format_.substr(at, end - at));
        at = end;
      } else if (is_doubled) {
        out_.Append(absl::string_view(&c, 1));
        at += 2;
      } else if (c == '}') {
        return absl::InvalidArgumentError("single '}' encountered in format string");
      } else {
        const size_t end = format_.find('}', at);
        if (end == absl::string_view::npos) {
          return absl::InvalidArgumentError("single '{' encountered in format string");
        }
        OCTAVO_RETURN_IF_ERROR(Field(format_.substr(at + 1, end - at - 1)));
        at = end + 1;
      }
      OCTAVO_RETURN_IF_ERROR(out_.status());
    }
    return runtime_.NewString(out_.Take());
  }

 private:
  // What stands between the braces.
  absl::Status Field(absl::string_view field) {
    if (absl::StrContains(field, "{")) return FormattingNotSupported("fields within fields");
    absl::string_view spec;
    if (size_t colon = field.find(':'); colon != absl::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (size_t mark = field.find('!'); mark != absl::string_view::npos) {
      absl::string_view name = field.substr(mark + 1);
      if (name != "r" && name != "s")
        return FormattingNotSupported(absl::StrCat("the conversion !", name));
      conversion = name[0];
      field = field.substr(0, mark);
    }
    OCTAVO_ASSIGN_OR_RETURN(Value value, Resolve(field));
    if (conversion != '\0') {
      OCTAVO_ASSIGN_OR_RETURN(
          std::string text, conversion == 'r' ? ToRepr(runtime_, value) : ToText(runtime_, value));
      OCTAVO_ASSIGN_OR_RETURN(value, runtime_.NewString(std::move(text)));
    }
    OCTAVO_ASSIGN_OR_RETURN(Value text, FormatOne(runtime_, value, spec));
    out_.Append(text.text());
    return absl::OkStatus();
  }

  absl::StatusOr<Value> Root(absl::string_view name) {
    size_t at = 0;
    std::optional<int64_t> index = ReadNumber(name, &at);
    if (name.empty() || (index.has_value() && at == name.size())) {
      const Numbering numbering = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kUnknown && numbering_ != numbering) {
        return absl::InvalidArgumentError(
            "a format string cannot mix automatic and manual field numbers");
      }
      numbering_ = numbering;
      const size_t place = name.empty() ? next_++ : static_cast<size_t>(*index);
      if (place < arguments_.positional.size()) return arguments_.positional[place];
      return absl::InvalidArgumentError(
          absl::StrCat("replacement index ", place, " is out of range"));
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return absl::InvalidArgumentError(absl::StrCat("the format field '", name, "' is missing"));
  }

  absl::StatusOr<Value> Resolve(absl::string_view field) {
    const size_t root_end = std::min(field.find_first_of(".["), field.size());
    OCTAVO_ASSIGN_OR_RETURN(Value value, Root(field.substr(0, root_end)));
    field.remove_prefix(root_end);
    while (!field.empty()) {
      const bool is_item = field[0] == '[';
      const size_t end =
          is_item ? field.find(']') : std::min(field.find_first_of(".[", 1), field.size());
      if ((!is_item && field[0] != '.') || end == absl::string_view::npos || end < 2) {
        return absl::InvalidArgumentError("empty attribute in format string");
      }
      absl::string_view name = field.substr(1, end - 1);
      size_t at = 0;
      std::optional<int64_t> index = ReadNumber(name, &at);
      if (!is_item) {
        OCTAVO_ASSIGN_OR_RETURN(value, GetAttribute(value, name));
      } else if (index.has_value() && at == name.size()) {
        OCTAVO_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, Value(*index)));
      } else {
        OCTAVO_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, Value::String(std::string(name))));
      }
      field.remove_prefix(is_item ? end + 1 : end);
    }
    return value;
  }

  enum class Numbering { kUnknown, kAutomatic, kManual };

  Runtime& runtime_;
  absl::string_view format_;
  const Arguments& arguments_;
  Numbering numbering_ = Numbering::kUnknown;
  size_t next_ = 0;
  BoundedString out_;
};

}  // namespace

absl::StatusOr<Value> FormatBraces(Runtime& runtime, absl::string_view format,
                                   const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).Run();
}

}  // namespace octavo::jinja
