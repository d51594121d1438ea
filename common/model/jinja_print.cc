#include "common/model/jinja_print.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

// A string's repr: single quotes unless it holds those and no double ones.
bool AppendTextRepr(absl::string_view text, BoundedString& out) {
  bool has_single = text.find('\'') != absl::string_view::npos;
  bool has_double = text.find('"') != absl::string_view::npos;
  char quote = has_single && !has_double ? '"' : '\'';
  std::string repr(1, quote);
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = NextCodePoint(text, &at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      repr.push_back('\\');
      repr.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      repr += "\\n";
    } else if (c == '\r') {
      repr += "\\r";
    } else if (c == '\t') {
      repr += "\\t";
    } else if (IsPrintable(c)) {
      absl::StrAppend(&repr, text.substr(start, at - start));
    } else {
      const auto code = static_cast<uint32_t>(c);
      repr += c <= 0xff     ? absl::StrFormat("\\x%02x", code)
              : c <= 0xffff ? absl::StrFormat("\\u%04x", code)
                            : absl::StrFormat("\\U%08x", code);
    }
  }
  repr.push_back(quote);
  return out.Append(repr);
}

class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime)
      : runtime_(runtime), out_(runtime.limits().max_string_bytes) {}

  absl::StatusOr<std::string> Write(const Value& value) {
    OCTAVO_RETURN_IF_ERROR(Append(value));
    OCTAVO_RETURN_IF_ERROR(out_.status());
    return out_.Take();
  }

 private:
  absl::Status Append(const Value& value) {
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(1));
    OCTAVO_RETURN_IF_ERROR(out_.status());
    if (value.is_none()) {
      out_.Append("None");
    } else if (const bool* truth = value.As<bool>()) {
      out_.Append(*truth ? "True" : "False");
    } else if (const int64_t* integer = value.As<int64_t>()) {
      out_.Append(absl::StrCat(*integer));
    } else if (const double* number = value.As<double>()) {
      out_.Append(FloatRepr(*number));
    } else if (value.is_markup()) {
      out_.Append("Markup(");
      AppendTextRepr(value.text(), out_);
      out_.Append(")");
    } else if (value.is_string()) {
      OCTAVO_RETURN_IF_ERROR(runtime_.Charge(value.weight()));
      AppendTextRepr(value.text(), out_);
    } else if (value.is_undefined()) {
      out_.Append("Undefined");
    } else if (const Dict* dict = value.dict()) {
      return AppendDict(*dict);
    } else if (const Sequence* sequence = value.sequence()) {
      return AppendSequence(*sequence, value.TypeName());
    } else if (Namespace* name_space = value.name_space()) {
      return AppendNamespace(*name_space);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("printing a ", value.TypeName(), " is not supported"));
    }
    return absl::OkStatus();
  }

  absl::Status AppendItems(const Sequence& sequence) {
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_.Append(", ");
      OCTAVO_RETURN_IF_ERROR(Append(sequence.items[i]));
    }
    return absl::OkStatus();
  }

  absl::Status AppendSequence(const Sequence& sequence, absl::string_view type_name) {
    switch (sequence.kind) {
      case SequenceKind::kTuple:
        out_.Append("(");
        OCTAVO_RETURN_IF_ERROR(AppendItems(sequence));
        out_.Append(sequence.items.size() == 1 ? ",)" : ")");
        return absl::OkStatus();
      case SequenceKind::kRange:
      case SequenceKind::kGenerator:
        return absl::InvalidArgumentError(
            absl::StrCat("printing a ", type_name, " is not supported; make it a list"));
      case SequenceKind::kList:
        out_.Append("[");
        OCTAVO_RETURN_IF_ERROR(AppendItems(sequence));
        out_.Append("]");
        return absl::OkStatus();
      default:
        out_.Append(absl::StrCat(type_name, "(["));
        OCTAVO_RETURN_IF_ERROR(AppendItems(sequence));
        out_.Append("])");
        return absl::OkStatus();
    }
  }

  absl::Status AppendDict(const Dict& dict) {
    out_.Append("{");
    bool is_first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!is_first) out_.Append(", ");
      is_first = false;
      OCTAVO_RETURN_IF_ERROR(Append(key));
      out_.Append(": ");
      OCTAVO_RETURN_IF_ERROR(Append(value));
    }
    out_.Append("}");
    return absl::OkStatus();
  }

  // A namespace can hold itself.
  absl::Status AppendNamespace(const Namespace& name_space) {
    if (++namespace_depth_ > runtime_.limits().max_value_depth) {
      return absl::ResourceExhaustedError(absl::StrCat("printing namespaces nested deeper than ",
                                                       runtime_.limits().max_value_depth,
                                                       " levels (max_value_depth)"));
    }
    out_.Append("<Namespace {");
    bool is_first = true;
    for (const auto& [name, value] : name_space.entries()) {
      if (!is_first) out_.Append(", ");
      is_first = false;
      AppendTextRepr(name, out_);
      out_.Append(": ");
      OCTAVO_RETURN_IF_ERROR(Append(value));
    }
    out_.Append("}>");
    --namespace_depth_;
    return absl::OkStatus();
  }

  Runtime& runtime_;
  BoundedString out_;
  int namespace_depth_ = 0;
};

}  // namespace

absl::StatusOr<std::string> ToText(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return std::string();
  if (value.is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(value.weight()));
    return value.text();
  }
  return ToRepr(runtime, value);
}

absl::StatusOr<std::string> ToRepr(Runtime& runtime, const Value& value) {
  return ReprWriter(runtime).Write(value);
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32] = {};
  const char* end =
      std::to_chars(buffer, buffer + sizeof(buffer) - 1, value, std::chars_format::scientific).ptr;
  absl::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  size_t mark = shortest.find('e');
  int exponent = std::atoi(buffer + mark + 1);
  std::string sign = shortest[0] == '-' ? "-" : "";
  std::string digits;
  for (char c : shortest.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string fraction = count > 1 ? absl::StrCat(".", digits.substr(1)) : "";
    return absl::StrFormat("%s%c%se%c%02d", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                           std::abs(exponent));
  }
  if (exponent < 0) return absl::StrCat(sign, "0.", std::string(-exponent - 1, '0'), digits);
  if (count <= exponent + 1) {
    return absl::StrCat(sign, digits, std::string(exponent + 1 - count, '0'), ".0");
  }
  return absl::StrCat(sign, digits.substr(0, exponent + 1), ".", digits.substr(exponent + 1));
}

}  // namespace octavo::jinja
