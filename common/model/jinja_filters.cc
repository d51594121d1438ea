// The table, and the filters of text, numbers and single values; those of sequences are in
// jinja_sequence_filters.cc.

#include "common/model/jinja_filters.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/jinja_format.h"
#include "common/model/jinja_number.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_string_methods.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

using Bound = std::vector<const Value*>;

// Jinja's soft_str: a string as it is, anything else printed.
absl::StatusOr<Value> SoftText(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value;
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, value));
  return runtime.NewString(std::move(text));
}

bool TruthOf(const Value* value) { return value != nullptr && value->Truth(); }

// value.name(arguments...) of the value's text.
absl::StatusOr<Value> CallTextMethod(Runtime& runtime, const Value& input, absl::string_view name,
                                     std::vector<Value> positional = {}) {
  OCTAVO_ASSIGN_OR_RETURN(Value text, SoftText(runtime, input));
  return CallMethod(runtime, BoundMethod{std::move(text), std::string(name)},
                    Arguments{std::move(positional), {}});
}

absl::StatusOr<Value> DefaultFilter(Runtime&, const Value& input, const Bound& bound) {
  if (!input.is_undefined() && !(TruthOf(bound[1]) && !input.Truth())) return input;
  return bound[0] != nullptr ? *bound[0] : Value::String("");
}

absl::StatusOr<Value> UpperFilter(Runtime& runtime, const Value& input, const Bound&) {
  return CallTextMethod(runtime, input, "upper");
}
absl::StatusOr<Value> LowerFilter(Runtime& runtime, const Value& input, const Bound&) {
  return CallTextMethod(runtime, input, "lower");
}
absl::StatusOr<Value> CapitalizeFilter(Runtime& runtime, const Value& input, const Bound&) {
  return CallTextMethod(runtime, input, "capitalize");
}
absl::StatusOr<Value> TrimFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  return CallTextMethod(runtime, input, "strip",
                        bound[0] != nullptr ? std::vector<Value>{*bound[0]} : std::vector<Value>{});
}
absl::StatusOr<Value> StringFilter(Runtime& runtime, const Value& input, const Bound&) {
  return SoftText(runtime, input);
}

// Jinja's own: a word begins after white space, hyphens and opening brackets, not after every
// character that is no letter.
absl::StatusOr<Value> TitleFilter(Runtime& runtime, const Value& input, const Bound&) {
  OCTAVO_ASSIGN_OR_RETURN(Value text, SoftText(runtime, input));
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(text.text().size())));
  auto is_separator = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
  };
  std::string out;
  absl::string_view rest = text.text();
  while (!rest.empty()) {
    size_t first_end = 0;
    const bool separates = is_separator(NextCodePoint(rest, &first_end));
    size_t end = first_end;
    while (end < rest.size()) {
      size_t next = end;
      if (is_separator(NextCodePoint(rest, &next)) != separates) break;
      end = next;
    }
    absl::StrAppend(&out, Upper(rest.substr(0, first_end)),
                    Lower(rest.substr(first_end, end - first_end)));
    rest.remove_prefix(end);
  }
  return runtime.NewString(std::move(out));
}

absl::StatusOr<Value> ReplaceFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, input));
  OCTAVO_ASSIGN_OR_RETURN(std::string old_text, ToText(runtime, *bound[0]));
  OCTAVO_ASSIGN_OR_RETURN(std::string new_text, ToText(runtime, *bound[1]));
  int64_t count = -1;
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    if (!bound[2]->is_integral()) {
      return absl::InvalidArgumentError("replace: the count must be an integer");
    }
    count = bound[2]->integer();
  }
  return ReplaceText(runtime, text, old_text, new_text, count);
}

absl::StatusOr<Value> IndentFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  if (!input.is_string()) {
    return input.is_undefined() ? UndefinedError(input)
                                : absl::InvalidArgumentError("indent: the value is not a string");
  }
  if (input.is_markup()) {
    return absl::InvalidArgumentError("indent of a string marked safe is not supported");
  }
  std::string indentation = "    ";
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indentation = bound[0]->text();
  } else if (bound[0] != nullptr) {
    BoundedString spaces(runtime.limits().max_string_bytes);
    if (!bound[0]->is_integral()) {
      return absl::InvalidArgumentError("indent: the width must be an integer or a string");
    }
    spaces.AppendRepeated(" ", bound[0]->integer());
    OCTAVO_RETURN_IF_ERROR(spaces.status());
    indentation = spaces.Take();
  }
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(input.text().size())));
  const bool indents_first = TruthOf(bound[1]);
  const bool indents_blank = TruthOf(bound[2]);
  const std::string text = input.text() + "\n";
  BoundedString out(runtime.limits().max_string_bytes);
  bool is_first = true;
  for (absl::string_view line : SplitLines(text, false)) {
    if (!is_first) out.Append("\n");
    if (is_first ? indents_first : indents_blank || !line.empty()) out.Append(indentation);
    out.Append(line);
    OCTAVO_RETURN_IF_ERROR(out.status());
    is_first = false;
  }
  return runtime.NewString(out.Take());
}

absl::StatusOr<Value> CenterFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  if (bound[0] != nullptr && !bound[0]->is_integral()) {
    return absl::InvalidArgumentError("center: the width must be an integer");
  }
  return CallTextMethod(runtime, input, "center",
                        {bound[0] != nullptr ? *bound[0] : Value(int64_t{80})});
}

absl::StatusOr<Value> FormatFilter(Runtime& runtime, const Value& input,
                                   const Arguments& arguments) {
  OCTAVO_ASSIGN_OR_RETURN(Value format, SoftText(runtime, input));
  if (arguments.named.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(Value values,
                            runtime.NewSequence(arguments.positional, SequenceKind::kTuple));
    return FormatPercent(runtime, format, values);
  }
  if (!arguments.positional.empty()) {
    return absl::InvalidArgumentError("format takes positional or keyword arguments, not both");
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) dict->Set(Value::String(name), value);
  OCTAVO_ASSIGN_OR_RETURN(Value values, runtime.NewDict(std::move(dict)));
  return FormatPercent(runtime, format, values);
}

absl::StatusOr<Value> SafeFilter(Runtime& runtime, const Value& input, const Bound&) {
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, input));
  return runtime.NewString(std::move(text), /*is_markup=*/true);
}

absl::StatusOr<Value> EscapeFilter(Runtime& runtime, const Value& input, const Bound&) {
  if (input.is_markup()) return input;
  OCTAVO_ASSIGN_OR_RETURN(std::string text, ToText(runtime, input));
  return runtime.NewString(EscapeHtml(text), /*is_markup=*/true);
}

absl::StatusOr<Value> LengthFilter(Runtime& runtime, const Value& input, const Bound&) {
  if (input.is_string()) OCTAVO_RETURN_IF_ERROR(runtime.Charge(input.weight()));
  OCTAVO_ASSIGN_OR_RETURN(int64_t length, Length(input));
  return Value(length);
}

absl::StatusOr<Value> IntFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  if (input.is_undefined()) return UndefinedError(input);
  int base = 10;
  if (bound[1] != nullptr) {
    if (!bound[1]->is_integral() || bound[1]->integer() < 2 || bound[1]->integer() > 36) {
      return absl::InvalidArgumentError("int: a base other than 2 to 36 is not supported");
    }
    base = static_cast<int>(bound[1]->integer());
  }
  Value if_not = bound[0] != nullptr ? *bound[0] : Value(int64_t{0});
  if (input.is_integral()) return Value(input.integer());
  std::optional<double> number;
  if (input.is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(input.text().size())));
    OCTAVO_ASSIGN_OR_RETURN(std::optional<int64_t> integer, ParseInteger(input.text(), base));
    if (integer.has_value()) return Value(*integer);
    number = ParseFloat(input.text());
  } else if (input.is_number()) {
    number = input.number();
  }
  if (!number.has_value() || !std::isfinite(*number)) return if_not;
  if (!(std::fabs(*number) < 0x1p63)) {
    return absl::InvalidArgumentError("int: the number does not fit into 64 bits");
  }
  return Value(static_cast<int64_t>(*number));
}

absl::StatusOr<Value> FloatFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  if (input.is_undefined()) return UndefinedError(input);
  if (input.is_number()) return Value(input.number());
  if (input.is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(input.text().size())));
    if (std::optional<double> number = ParseFloat(input.text())) return Value(*number);
  }
  return bound[0] != nullptr ? *bound[0] : Value(0.0);
}

absl::StatusOr<Value> AbsFilter(Runtime&, const Value& input, const Bound&) {
  if (input.is_integral()) {
    return input.integer() < 0 ? Negate(input) : absl::StatusOr<Value>(Value(input.integer()));
  }
  if (input.is_number()) return Value(std::fabs(input.number()));
  if (input.is_undefined()) return UndefinedError(input);
  return absl::InvalidArgumentError(absl::StrCat("abs: a ", input.TypeName(), " is not a number"));
}

absl::StatusOr<Value> RoundFilter(Runtime&, const Value& input, const Bound& bound) {
  if (input.is_undefined()) return UndefinedError(input);
  if (!input.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("round: a ", input.TypeName(), " is not a number"));
  }
  if (bound[0] != nullptr && !bound[0]->is_integral()) {
    return absl::InvalidArgumentError("round: the precision must be an integer");
  }
  const int64_t precision = bound[0] != nullptr ? bound[0]->integer() : 0;
  if (precision < 0 || precision > 300) {
    return absl::InvalidArgumentError("round: a precision outside 0 to 300 is not supported");
  }
  const std::string method =
      bound[1] != nullptr && bound[1]->is_string() ? bound[1]->text() : "common";
  if (method == "common") {
    if (input.is_integral()) return Value(input.integer());
    if (!std::isfinite(input.number())) return input;
    const std::string digits = absl::StrFormat("%.*f", static_cast<int>(precision), input.number());
    return Value(std::strtod(digits.c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") {
    return absl::InvalidArgumentError("round: the method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  if (!std::isfinite(scaled)) return absl::InvalidArgumentError("round: the number is not finite");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

absl::StatusOr<Value> ToJsonFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  JsonStyle style;
  style.ensure_ascii = TruthOf(bound[0]);
  style.sort_keys = TruthOf(bound[3]);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.is_indented = true;
    style.item_separator =
        std::string(",");  // assigning the literal sets off GCC 12 (-Wrestrict, its bug 105651)
    if (bound[1]->is_string()) {
      style.indent = bound[1]->text();
    } else if (bound[1]->is_integral() && bound[1]->integer() <= 100) {
      style.indent =
          std::string(static_cast<size_t>(std::max<int64_t>(0, bound[1]->integer())), ' ');
    } else {
      return absl::InvalidArgumentError("tojson: indent must be an integer up to 100 or a string");
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const Sequence* separators = bound[2]->sequence();
    if (separators == nullptr || separators->items.size() != 2 ||
        !separators->items[0].is_string() || !separators->items[1].is_string()) {
      return absl::InvalidArgumentError("tojson: separators must be two strings");
    }
    style.item_separator = separators->items[0].text();
    style.key_separator = separators->items[1].text();
  }
  return ToJson(runtime, input, style);
}

}  // namespace

const FilterTable& ScalarFilters() {
  static const auto* filters = new FilterTable{
      {"default", {DefaultFilter, {"default_value", "boolean"}}},
      {"d", {DefaultFilter, {"default_value", "boolean"}}},
      {"upper", {UpperFilter, {}}},
      {"lower", {LowerFilter, {}}},
      {"capitalize", {CapitalizeFilter, {}}},
      {"title", {TitleFilter, {}}},
      {"trim", {TrimFilter, {"chars"}}},
      {"string", {StringFilter, {}}},
      {"replace", {ReplaceFilter, {"old", "new", "count"}, 2}},
      {"indent", {IndentFilter, {"width", "first", "blank"}}},
      {"center", {CenterFilter, {"width"}}},
      {"format", {nullptr, {}, 0, FormatFilter}},
      {"safe", {SafeFilter, {}}},
      {"escape", {EscapeFilter, {}}},
      {"e", {EscapeFilter, {}}},
      {"length", {LengthFilter, {}}},
      {"count", {LengthFilter, {}}},
      {"int", {IntFilter, {"default", "base"}}},
      {"float", {FloatFilter, {"default"}}},
      {"abs", {AbsFilter, {}}},
      {"round", {RoundFilter, {"precision", "method"}}},
      {"tojson", {ToJsonFilter, {"ensure_ascii", "indent", "separators", "sort_keys"}}},
  };
  return *filters;
}

const Filter* FindFilter(absl::string_view name) {
  for (const FilterTable* table : {&ScalarFilters(), &SequenceFilters()}) {
    auto found = table->find(name);
    if (found != table->end()) return &found->second;
  }
  return nullptr;
}

absl::StatusOr<Value> ApplyFilter(Runtime& runtime, absl::string_view name, const Value& input,
                                  const Arguments& arguments) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(1));
  const Filter* filter = FindFilter(name);
  if (filter == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the filter '", name, "' is not supported"));
  }
  if (filter->apply_raw != nullptr) return filter->apply_raw(runtime, input, arguments);
  OCTAVO_ASSIGN_OR_RETURN(Bound bound,
                          BindArguments(name, arguments, filter->parameters, filter->required));
  return filter->apply(runtime, input, bound);
}

}  // namespace octavo::jinja
