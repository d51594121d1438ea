#include "common/model/jinja_string_methods.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_case.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_text.h"
#include "common/status.h"
#include "utf8proc.h"

namespace octavo::jinja {
namespace {

using Bound = std::vector<const Value*>;

absl::StatusOr<std::string> TextArgument(absl::string_view callee, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return UndefinedError(value);
  return absl::InvalidArgumentError(
      absl::StrCat(callee, "() takes a string, not ", value.TypeName()));
}

absl::StatusOr<int64_t> IntegerArgument(absl::string_view callee, const Value* value,
                                        int64_t if_absent) {
  if (value == nullptr) return if_absent;
  if (value->is_integral()) return value->integer();
  return absl::InvalidArgumentError(
      absl::StrCat(callee, "() takes an integer, not ", value->TypeName()));
}

absl::StatusOr<Value> NewTexts(Runtime& runtime, const std::vector<absl::string_view>& parts,
                               SequenceKind kind) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (absl::string_view part : parts) {
    OCTAVO_ASSIGN_OR_RETURN(Value item, runtime.NewString(std::string(part)));
    items.push_back(std::move(item));
  }
  return runtime.NewSequence(std::move(items), kind);
}

// The part of a string that find, count, startswith and endswith look at: [start, end) in
// characters, Python's way.
struct Window {
  int64_t first = 0;  // the window's first character
  absl::string_view text;
  bool is_empty_range = false;  // start lies behind the end: not even "" is found
};

absl::StatusOr<Window> WindowOf(Runtime& runtime, absl::string_view callee, absl::string_view text,
                                const Value* start, const Value* end) {
  if (start != nullptr && start->is_none()) start = nullptr;
  if (end != nullptr && end->is_none()) end = nullptr;
  if (start == nullptr && end == nullptr) return Window{0, text, false};
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(text.size())));
  int64_t length = TextLength(text);
  OCTAVO_ASSIGN_OR_RETURN(int64_t first, IntegerArgument(callee, start, 0));
  OCTAVO_ASSIGN_OR_RETURN(int64_t last, IntegerArgument(callee, end, length));
  first = first < -length ? 0 : first < 0 ? first + length : first;
  last = last < -length ? 0 : last < 0 ? last + length : std::min(last, length);
  if (first > last) return Window{first, absl::string_view(), true};
  size_t begin = ByteOffset(text, first);
  return Window{first, text.substr(begin, ByteOffset(text.substr(begin), last - first)), false};
}

absl::StatusOr<Value> Strip(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  const Value& receiver = method.receiver;
  std::optional<std::string> characters;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    OCTAVO_ASSIGN_OR_RETURN(characters, TextArgument(method.name, *bound[0]));
    OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, receiver.text(), *characters));
  }
  const std::string* set = characters.has_value() ? &*characters : nullptr;
  absl::string_view text = receiver.text();
  if (method.name != "rstrip") text = StripLeft(text, set);
  if (method.name != "lstrip") text = StripRight(text, set);
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(receiver.text().size() - text.size())));
  return runtime.NewString(std::string(text), receiver.is_markup());
}

absl::StatusOr<Value> Split(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  const std::string& text = method.receiver.text();
  bool from_right = method.name == "rsplit";
  OCTAVO_ASSIGN_OR_RETURN(int64_t limit, IntegerArgument(method.name, bound[1], -1));
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(text.size())));
  if (bound[0] == nullptr || bound[0]->is_none()) {
    return NewTexts(runtime,
                    from_right ? SplitAtSpaceFromRight(text, limit) : SplitAtSpace(text, limit),
                    SequenceKind::kList);
  }
  OCTAVO_ASSIGN_OR_RETURN(std::string separator, TextArgument(method.name, *bound[0]));
  if (separator.empty()) return absl::InvalidArgumentError("split(): empty separator");
  OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, text, separator));
  return NewTexts(
      runtime,
      from_right ? SplitAtFromRight(text, separator, limit) : SplitAt(text, separator, limit),
      SequenceKind::kList);
}

absl::StatusOr<Value> Partition(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  absl::string_view text = method.receiver.text();
  OCTAVO_ASSIGN_OR_RETURN(std::string separator, TextArgument(method.name, *bound[0]));
  if (separator.empty()) return absl::InvalidArgumentError("partition(): empty separator");
  OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, text, separator));
  bool from_right = method.name == "rpartition";
  size_t found = from_right ? text.rfind(separator) : text.find(separator);
  std::vector<absl::string_view> parts;
  if (found != absl::string_view::npos) {
    parts = {text.substr(0, found), text.substr(found, separator.size()),
             text.substr(found + separator.size())};
  } else if (from_right) {
    parts = {"", "", text};
  } else {
    parts = {text, "", ""};
  }
  return NewTexts(runtime, parts, SequenceKind::kTuple);
}

absl::StatusOr<Value> StartsOrEndsWith(Runtime& runtime, const BoundMethod& method,
                                       const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(
      Window window, WindowOf(runtime, method.name, method.receiver.text(), bound[1], bound[2]));
  const Sequence* options = bound[0]->sequence();
  std::vector<Value> affixes = options != nullptr && options->kind == SequenceKind::kTuple
                                   ? options->items
                                   : std::vector<Value>{*bound[0]};
  for (const Value& affix_value : affixes) {
    OCTAVO_ASSIGN_OR_RETURN(std::string affix, TextArgument(method.name, affix_value));
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(1 + affix.size() / 8));
    if (window.is_empty_range) continue;
    if (method.name == "startswith" ? absl::StartsWith(window.text, affix)
                                    : absl::EndsWith(window.text, affix)) {
      return Value(true);
    }
  }
  return Value(false);
}

absl::StatusOr<Value> Find(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::string needle, TextArgument(method.name, *bound[0]));
  OCTAVO_ASSIGN_OR_RETURN(
      Window window, WindowOf(runtime, method.name, method.receiver.text(), bound[1], bound[2]));
  OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, method.receiver.text(), needle));
  bool from_right = method.name[0] == 'r';
  size_t found = window.is_empty_range ? absl::string_view::npos
                 : from_right          ? window.text.rfind(needle)
                                       : window.text.find(needle);
  if (found != absl::string_view::npos) {
    return Value(window.first + TextLength(window.text.substr(0, found)));
  }
  if (absl::EndsWith(method.name, "index")) {
    return absl::InvalidArgumentError(absl::StrCat(method.name, "(): substring not found"));
  }
  return Value(int64_t{-1});
}

absl::StatusOr<Value> Count(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::string needle, TextArgument(method.name, *bound[0]));
  OCTAVO_ASSIGN_OR_RETURN(
      Window window, WindowOf(runtime, method.name, method.receiver.text(), bound[1], bound[2]));
  OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, method.receiver.text(), needle));
  if (window.is_empty_range) return Value(int64_t{0});
  if (needle.empty()) return Value(TextLength(window.text) + 1);
  int64_t count = 0;
  for (size_t at = window.text.find(needle); at != absl::string_view::npos;
       at = window.text.find(needle, at + needle.size())) {
    ++count;
  }
  return Value(count);
}

absl::StatusOr<Value> Replace(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::string old_text, TextArgument(method.name, *bound[0]));
  OCTAVO_ASSIGN_OR_RETURN(std::string new_text, TextArgument(method.name, *bound[1]));
  OCTAVO_ASSIGN_OR_RETURN(int64_t count, IntegerArgument(method.name, bound[2], -1));
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(TextCost(new_text.size())));
  return ReplaceText(runtime, method.receiver.text(), old_text, new_text, count);
}

absl::StatusOr<Value> Join(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, *bound[0]));
  std::vector<std::string> parts;
  for (const Value& item : items) {
    OCTAVO_ASSIGN_OR_RETURN(std::string part, TextArgument(method.name, item));
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(item.weight()));
    parts.push_back(std::move(part));
  }
  return JoinTexts(runtime, method.receiver.text(), parts);
}

absl::StatusOr<Value> Justify(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  const std::string& text = method.receiver.text();
  OCTAVO_ASSIGN_OR_RETURN(int64_t width, IntegerArgument(method.name, bound[0], 0));
  std::string fill = " ";
  if (bound[1] != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(fill, TextArgument(method.name, *bound[1]));
    if (TextLength(fill) != 1) {
      return absl::InvalidArgumentError("the fill character must be exactly one character long");
    }
  }
  BoundedString out(runtime.limits().max_string_bytes);
  int64_t missing = std::max<int64_t>(0, width - TextLength(text));
  if (method.name == "rjust") out.AppendRepeated(fill, missing);
  out.Append(text);
  if (method.name == "ljust") out.AppendRepeated(fill, missing);
  OCTAVO_RETURN_IF_ERROR(out.status());
  return runtime.NewString(out.Take());
}

absl::StatusOr<Value> Center(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  if (bound[1] != nullptr) {
    return absl::InvalidArgumentError("center() with a fill character is not supported");
  }
  OCTAVO_ASSIGN_OR_RETURN(int64_t width, IntegerArgument(method.name, bound[0], 0));
  return CenterText(runtime, method.receiver.text(), width);
}

absl::StatusOr<Value> RemoveAffix(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::string affix, TextArgument(method.name, *bound[0]));
  absl::string_view text = method.receiver.text();
  if (method.name == "removeprefix" && absl::StartsWith(text, affix)) {
    text.remove_prefix(affix.size());
  } else if (method.name == "removesuffix" && absl::EndsWith(text, affix)) {
    text.remove_suffix(affix.size());
  }
  return runtime.NewString(std::string(text));
}

absl::StatusOr<Value> Lines(Runtime& runtime, const BoundMethod& method, const Bound& bound) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(method.receiver.text().size())));
  return NewTexts(runtime,
                  SplitLines(method.receiver.text(), bound[0] != nullptr && bound[0]->Truth()),
                  SequenceKind::kList);
}

absl::StatusOr<Value> ChangeCase(Runtime& runtime, const BoundMethod& method, const Bound&) {
  const std::string& text = method.receiver.text();
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(text.size())));
  std::string out = method.name == "upper"        ? Upper(text)
                    : method.name == "lower"      ? Lower(text)
                    : method.name == "capitalize" ? Capitalize(text)
                                                  : Title(text);
  return runtime.NewString(std::move(out), method.receiver.is_markup());
}

// Unicode's general category as two questions.
bool IsLetter(utf8proc_category_t category) {
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(utf8proc_category_t category) { return category == UTF8PROC_CATEGORY_ND; }

// isalpha(), isdigit() and so on: every character must be one, and there must be some.
absl::StatusOr<Value> IsAll(Runtime& runtime, const BoundMethod& method, const Bound&) {
  const std::string& text = method.receiver.text();
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(text.size())));
  bool all = !text.empty();
  for (size_t at = 0; at < text.size();) {
    char32_t c = NextCodePoint(text, &at);
    utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (method.name == "isspace") {
      all = all && IsSpace(c);
    } else if (method.name == "isdecimal") {
      all = all && IsDecimal(category);
    } else if (method.name == "isalpha") {
      all = all && IsLetter(category);
    } else if (category == UTF8PROC_CATEGORY_NO || category == UTF8PROC_CATEGORY_NL) {
      return absl::InvalidArgumentError(absl::StrCat(
          method.name, "() of numeric characters that are not decimal digits is not supported"));
    } else {
      all = all && (IsDecimal(category) || (method.name == "isalnum" && IsLetter(category)));
    }
  }
  return Value(all);
}

// isupper(), islower(): at least one cased character, and none of another case.
absl::StatusOr<Value> IsOfCase(Runtime& runtime, const BoundMethod& method, const Bound&) {
  const std::string& text = method.receiver.text();
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(text.size())));
  bool wants_upper = method.name == "isupper";
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = NextCodePoint(text, &at);
    if (!IsCased(c)) continue;
    utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    bool is_upper = category == UTF8PROC_CATEGORY_LU;
    if (category == UTF8PROC_CATEGORY_LT || is_upper != wants_upper) return Value(false);
    any = true;
  }
  return Value(any);
}

struct Method {
  absl::StatusOr<Value> (*call)(Runtime&, const BoundMethod&, const Bound&);
  std::vector<absl::string_view> parameters;
  size_t required = 0;
};

const absl::flat_hash_map<absl::string_view, Method>& Methods() {
  static const auto* methods = new absl::flat_hash_map<absl::string_view, Method>{
      {"strip", {Strip, {"chars"}}},
      {"lstrip", {Strip, {"chars"}}},
      {"rstrip", {Strip, {"chars"}}},
      {"split", {Split, {"sep", "maxsplit"}}},
      {"rsplit", {Split, {"sep", "maxsplit"}}},
      {"splitlines", {Lines, {"keepends"}}},
      {"partition", {Partition, {"sep"}, 1}},
      {"rpartition", {Partition, {"sep"}, 1}},
      {"startswith", {StartsOrEndsWith, {"prefix", "start", "end"}, 1}},
      {"endswith", {StartsOrEndsWith, {"suffix", "start", "end"}, 1}},
      {"find", {Find, {"sub", "start", "end"}, 1}},
      {"rfind", {Find, {"sub", "start", "end"}, 1}},
      {"index", {Find, {"sub", "start", "end"}, 1}},
      {"rindex", {Find, {"sub", "start", "end"}, 1}},
      {"count", {Count, {"sub", "start", "end"}, 1}},
      {"replace", {Replace, {"old", "new", "count"}, 2}},
      {"join", {Join, {"iterable"}, 1}},
      {"ljust", {Justify, {"width", "fillchar"}, 1}},
      {"rjust", {Justify, {"width", "fillchar"}, 1}},
      {"center", {Center, {"width", "fillchar"}, 1}},
      {"removeprefix", {RemoveAffix, {"prefix"}, 1}},
      {"removesuffix", {RemoveAffix, {"suffix"}, 1}},
      {"upper", {ChangeCase, {}}},
      {"lower", {ChangeCase, {}}},
      {"title", {ChangeCase, {}}},
      {"capitalize", {ChangeCase, {}}},
      {"isspace", {IsAll, {}}},
      {"isalpha", {IsAll, {}}},
      {"isdigit", {IsAll, {}}},
      {"isdecimal", {IsAll, {}}},
      {"isalnum", {IsAll, {}}},
      {"isupper", {IsOfCase, {}}},
      {"islower", {IsOfCase, {}}},
  };
  return *methods;
}

}  // namespace

bool IsStringMethod(absl::string_view name) {
  static const auto* unsupported = new absl::flat_hash_set<absl::string_view>{
      "casefold",  "encode",       "expandtabs",  "format_map", "isascii",
      "isnumeric", "isidentifier", "isprintable", "istitle",    "maketrans",
      "swapcase",  "translate",    "zfill",       "format"};
  return Methods().contains(name) || unsupported->contains(name);
}

bool IsPlainOnMarkup(absl::string_view name) {
  static const auto* plain = new absl::flat_hash_set<absl::string_view>{
      "strip",   "lstrip",  "rstrip",  "startswith", "endswith", "find",    "rfind",
      "index",   "rindex",  "count",   "upper",      "lower",    "title",   "capitalize",
      "isspace", "isalpha", "isdigit", "isdecimal",  "isalnum",  "isupper", "islower"};
  return plain->contains(name);
}

absl::StatusOr<Value> CallStringMethod(Runtime& runtime, const BoundMethod& method,
                                       const Arguments& arguments) {
  auto found = Methods().find(method.name);
  if (found == Methods().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the method str.", method.name, "() is not supported"));
  }
  // str's methods take no keywords, but for split and splitlines.
  if (!arguments.named.empty() && !absl::StrContains(method.name, "split")) {
    return absl::InvalidArgumentError(
        absl::StrCat("str.", method.name, "() takes no keyword arguments"));
  }
  OCTAVO_ASSIGN_OR_RETURN(
      Bound bound,
      BindArguments(method.name, arguments, found->second.parameters, found->second.required));
  return found->second.call(runtime, method, bound);
}

}  // namespace octavo::jinja
