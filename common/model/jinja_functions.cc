#include "common/model/jinja_functions.h"

#include <locale.h>

#include <clocale>
#include <ctime>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_limits.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

constexpr char kRaisedPayload[] = "octavo/jinja/raised";
constexpr size_t kMaxTimeFormatBytes = 256;

absl::StatusOr<Value> Range(Runtime& runtime, const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (!arguments.named.empty() || given.empty() || given.size() > 3) {
    return absl::InvalidArgumentError("range takes one to three integers");
  }
  for (const Value& value : given) {
    if (value.is_integral()) continue;
    return absl::InvalidArgumentError(absl::StrCat("range takes integers, not ", value.TypeName()));
  }
  const __int128 start = given.size() > 1 ? given[0].integer() : 0;
  const __int128 stop = given.size() > 1 ? given[1].integer() : given[0].integer();
  const __int128 step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) return absl::InvalidArgumentError("range: the step must not be zero");
  __int128 count = 0;
  if (step > 0 && start < stop) count = (stop - start - 1) / step + 1;
  if (step < 0 && start > stop) count = (start - stop - 1) / -step + 1;
  if (count > kJinjaMaxRange) {
    return absl::InvalidArgumentError(
        absl::StrCat("a range has more than the ", kJinjaMaxRange, " items allowed"));
  }
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * static_cast<uint64_t>(count)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (__int128 i = 0; i < count; ++i) {
    items.emplace_back(static_cast<int64_t>(start + i * step));
  }
  return runtime.NewSequence(std::move(items), SequenceKind::kRange);
}

// dict(mapping or pairs, name=value, ...): the entries.
absl::StatusOr<std::shared_ptr<Dict>> MakeDict(Runtime& runtime, const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError("dict takes at most one positional argument");
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (const Dict* other = source.dict()) {
      OCTAVO_RETURN_IF_ERROR(runtime.Charge(kEntryCost * other->entries().size()));
      *dict = *other;
    } else {
      OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> pairs, Iterate(runtime, source));
      for (const Value& pair : pairs) {
        OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> both, Iterate(runtime, pair));
        if (both.size() != 2) {
          return absl::InvalidArgumentError("dict takes pairs of a key and a value");
        }
        OCTAVO_RETURN_IF_ERROR(runtime.Charge(dict->FindCost(both[0])));
        if (!IsHashable(both[0])) {
          return absl::InvalidArgumentError(
              absl::StrCat("unhashable type: '", both[0].TypeName(), "'"));
        }
        dict->Set(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict->Set(Value::String(name), value);
  return dict;
}

absl::StatusOr<Value> MakeNamespace(Runtime& runtime, const Arguments& arguments) {
  OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<Dict> dict, MakeDict(runtime, arguments));
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kScopeCost + kEntryCost * dict->entries().size()));
  Namespace* name_space = runtime.NewNamespace();
  for (const auto& [key, value] : dict->entries()) {
    if (!key.is_string()) {
      return absl::InvalidArgumentError("a namespace whose names are not strings is not supported");
    }
    name_space->Set(key.text(), value);
  }
  return Value(name_space);
}

absl::StatusOr<Value> RaiseException(Runtime& runtime, const Arguments& arguments) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<const Value*> bound,
                          BindArguments("raise_exception", arguments, {"message"}, 1));
  OCTAVO_ASSIGN_OR_RETURN(std::string message, ToText(runtime, *bound[0]));
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kRaisedPayload, absl::Cord());
  return status;
}

absl::StatusOr<Value> StrftimeNow(Runtime& runtime, const Arguments& arguments) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<const Value*> bound,
                          BindArguments("strftime_now", arguments, {"format"}, 1));
  if (!bound[0]->is_string()) {
    return absl::InvalidArgumentError("strftime_now takes a string");
  }
  OCTAVO_ASSIGN_OR_RETURN(std::string text, FormatTime(bound[0]->text(), *runtime.now()));
  return runtime.NewString(std::move(text));
}

// Every directive must mean the same here as in Python: %f, %z and %Z do not.
absl::Status CheckTimeFormat(absl::string_view format) {
  constexpr absl::string_view kDirectives = "aAbBcCdDeFGghHIjklmMnpRrSTtuUVwWxXyY%";
  if (format.size() > kMaxTimeFormatBytes) {
    return absl::InvalidArgumentError(absl::StrCat("strftime_now: the format has ", format.size(),
                                                   " bytes; at most ", kMaxTimeFormatBytes,
                                                   " are allowed"));
  }
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] == '\0')
      return absl::InvalidArgumentError("strftime_now: embedded null character");
    if (format[at] != '%') continue;
    ++at;
    if (at < format.size() && format[at] == '-') ++at;
    if (at < format.size() && kDirectives.find(format[at]) != kDirectives.npos) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("strftime_now: the directive '%",
                     at < format.size() ? std::string(1, format[at]) : "", "' is not supported"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> FindGlobal(const Runtime& runtime, absl::string_view name) {
  if (name == "range") return Value(Function::kRange);
  if (name == "dict") return Value(Function::kDict);
  if (name == "namespace") return Value(Function::kNamespace);
  if (name == "raise_exception") return Value(Function::kRaiseException);
  if (name == "strftime_now" && runtime.now().has_value()) return Value(Function::kStrftimeNow);
  if (name == "cycler" || name == "joiner" || name == "lipsum") {
    return absl::InvalidArgumentError(absl::StrCat("the function '", name, "' is not supported"));
  }
  return Value::Undefined(absl::StrCat("'", name, "' is undefined"));
}

absl::StatusOr<Value> CallFunction(Runtime& runtime, Function function,
                                   const Arguments& arguments) {
  switch (function) {
    case Function::kRange:
      return Range(runtime, arguments);
    case Function::kDict: {
      OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<Dict> dict, MakeDict(runtime, arguments));
      return runtime.NewDict(std::move(dict));
    }
    case Function::kNamespace:
      return MakeNamespace(runtime, arguments);
    case Function::kRaiseException:
      return RaiseException(runtime, arguments);
    case Function::kStrftimeNow:
      return StrftimeNow(runtime, arguments);
  }
  return Value();
}

bool IsRaised(const absl::Status& status) { return status.GetPayload(kRaisedPayload).has_value(); }

absl::StatusOr<std::string> FormatTime(absl::string_view format, absl::CivilSecond time) {
  OCTAVO_RETURN_IF_ERROR(CheckTimeFormat(format));
  if (format.empty()) return std::string();
  std::tm fields = {};
  fields.tm_year = static_cast<int>(time.year() - 1900);
  fields.tm_mon = time.month() - 1;
  fields.tm_mday = time.day();
  fields.tm_hour = time.hour();
  fields.tm_min = time.minute();
  fields.tm_sec = time.second();
  fields.tm_yday = absl::GetYearDay(absl::CivilDay(time)) - 1;
  fields.tm_wday = (static_cast<int>(absl::GetWeekday(time)) + 1) % 7;
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  char buffer[64 * kMaxTimeFormatBytes];
  const size_t size =
      strftime_l(buffer, sizeof(buffer), std::string(format).c_str(), &fields, c_locale);
  return std::string(buffer, size);
}

}  // namespace octavo::jinja
