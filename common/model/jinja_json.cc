// json.dumps and JSON input: the second half of jinja_print.h.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

void AppendUnicodeEscape(char32_t c, std::string* out) {
  if (c > 0xffff) {
    c -= 0x10000;
    absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(0xd800 + (c >> 10)));
    c = 0xdc00 + (c & 0x3ff);
  }
  absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
}

std::string JsonText(absl::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = NextCodePoint(text, &at);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\f') {
      out += "\\f";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c < 0x20 || (ensure_ascii && c > 0x7e)) {
      AppendUnicodeEscape(c, &out);
    } else {
      absl::StrAppend(&out, text.substr(start, at - start));
    }
  }
  out.push_back('"');
  return out;
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return FloatRepr(value);
}

absl::Status NotSerializable(const Value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("an object of type ", value.TypeName(), " has no form in JSON (tojson)"));
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime.limits().max_string_bytes) {}

  absl::StatusOr<Value> Write(const Value& value) {
    OCTAVO_RETURN_IF_ERROR(Append(value, 0));
    OCTAVO_RETURN_IF_ERROR(out_.status());
    return runtime_.NewString(out_.Take());
  }

 private:
  absl::Status Append(const Value& value, int level) {
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(1));
    OCTAVO_RETURN_IF_ERROR(out_.status());
    if (const Dict* dict = value.dict()) return AppendDict(*dict, level);
    const Sequence* sequence = value.sequence();
    if (sequence != nullptr &&
        (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple)) {
      return AppendList(*sequence, level);
    }
    OCTAVO_ASSIGN_OR_RETURN(std::string text, Scalar(value));
    out_.Append(text);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Scalar(const Value& value) {
    if (value.is_none()) return std::string("null");
    if (const bool* truth = value.As<bool>()) return std::string(*truth ? "true" : "false");
    if (const int64_t* integer = value.As<int64_t>()) return absl::StrCat(*integer);
    if (const double* number = value.As<double>()) return JsonFloat(*number);
    if (!value.is_string()) return NotSerializable(value);
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(value.weight()));
    return JsonText(value.text(), style_.ensure_ascii);
  }

  // A key that is not a string is turned into one.
  absl::StatusOr<std::string> Key(const Value& key) {
    if (key.is_string()) return Scalar(key);
    if (!key.is_none() && !key.is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a dict key of type ", key.TypeName(), " has no form in JSON (tojson)"));
    }
    OCTAVO_ASSIGN_OR_RETURN(std::string text, Scalar(key));
    return absl::StrCat("\"", text, "\"");
  }

  void StartLine(int level) {
    if (!style_.is_indented) return;
    out_.Append("\n");
    out_.AppendRepeated(style_.indent, level);
  }

  absl::Status AppendList(const Sequence& list, int level) {
    if (list.items.empty()) {
      out_.Append("[]");
      return absl::OkStatus();
    }
    out_.Append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      StartLine(level + 1);
      OCTAVO_RETURN_IF_ERROR(Append(list.items[i], level + 1));
    }
    StartLine(level);
    out_.Append("]");
    return absl::OkStatus();
  }

  // The entries in the order they are written. sort_keys over keys that are not all strings is
  // refused: Python compares the values themselves and fails on a mixture.
  absl::StatusOr<std::vector<const Dict::Entry*>> Ordered(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (!style_.sort_keys) return entries;
    for (const Dict::Entry* entry : entries) {
      if (!entry->first.is_string() && entries.size() > 1) {
        return absl::InvalidArgumentError(
            "tojson with sort_keys over keys that are not strings is not supported");
      }
    }
    OCTAVO_RETURN_IF_ERROR(runtime_.Charge(dict.weight()));
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first.text() < b->first.text(); });
    return entries;
  }

  absl::Status AppendDict(const Dict& dict, int level) {
    if (dict.entries().empty()) {
      out_.Append("{}");
      return absl::OkStatus();
    }
    OCTAVO_ASSIGN_OR_RETURN(std::vector<const Dict::Entry*> entries, Ordered(dict));
    out_.Append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      StartLine(level + 1);
      OCTAVO_ASSIGN_OR_RETURN(std::string key, Key(entries[i]->first));
      out_.Append(key);
      out_.Append(style_.key_separator);
      OCTAVO_RETURN_IF_ERROR(Append(entries[i]->second, level + 1));
    }
    StartLine(level);
    out_.Append("}");
    return absl::OkStatus();
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  BoundedString out_;
};

absl::StatusOr<Value> FromJsonAt(Runtime& runtime, const nlohmann::ordered_json& json, int level) {
  if (level > runtime.limits().max_value_depth) {
    return absl::InvalidArgumentError(absl::StrCat("JSON is nested deeper than ",
                                                   runtime.limits().max_value_depth,
                                                   " levels (max_value_depth)"));
  }
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::null:
    case nlohmann::ordered_json::value_t::discarded:
      return Value();
    case nlohmann::ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return absl::InvalidArgumentError(
            absl::StrCat("the integer ", number, " does not fit into 64 signed bits"));
      }
      return Value(static_cast<int64_t>(number));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      if (!IsValidUtf8(text)) return absl::InvalidArgumentError("a JSON string is not UTF-8");
      return runtime.NewString(text);
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const nlohmann::ordered_json& element : json) {
        OCTAVO_ASSIGN_OR_RETURN(Value item, FromJsonAt(runtime, element, level + 1));
        items.push_back(std::move(item));
      }
      return runtime.NewSequence(std::move(items), SequenceKind::kList);
    }
    case nlohmann::ordered_json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, element] : json.items()) {
        if (!IsValidUtf8(key)) return absl::InvalidArgumentError("a JSON key is not UTF-8");
        OCTAVO_ASSIGN_OR_RETURN(Value item, FromJsonAt(runtime, element, level + 1));
        OCTAVO_ASSIGN_OR_RETURN(Value name, runtime.NewString(key));
        dict->Set(std::move(name), std::move(item));
      }
      return runtime.NewDict(std::move(dict));
    }
    case nlohmann::ordered_json::value_t::binary:
      break;
  }
  return absl::InvalidArgumentError("binary JSON values are not supported");
}

}  // namespace

absl::StatusOr<Value> ToJson(Runtime& runtime, const Value& value, const JsonStyle& style) {
  return JsonWriter(runtime, style).Write(value);
}

absl::StatusOr<Value> FromJson(Runtime& runtime, const nlohmann::ordered_json& json) {
  return FromJsonAt(runtime, json, 1);
}

}  // namespace octavo::jinja
