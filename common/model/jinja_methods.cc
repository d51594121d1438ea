#include "common/model/jinja_methods.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_format.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_string_methods.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

template <size_t kCount>
bool Holds(const std::array<absl::string_view, kCount>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<absl::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};
constexpr std::array<absl::string_view, 6> kDictMethods = {"copy",  "fromkeys", "get",
                                                           "items", "keys",     "values"};
constexpr std::array<absl::string_view, 8> kListMutators = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
constexpr std::array<absl::string_view, 3> kListMethods = {"copy", "count", "index"};
constexpr std::array<absl::string_view, 2> kTupleMethods = {"count", "index"};
constexpr std::array<absl::string_view, 2> kLoopMethods = {"changed", "cycle"};

absl::StatusOr<Value> View(Runtime& runtime, const Dict& dict, SequenceKind kind) {
  OCTAVO_RETURN_IF_ERROR(runtime.Charge((kObjectCost + 2 * kElementCost) * dict.entries().size()));
  std::vector<Value> items;
  items.reserve(dict.entries().size());
  for (const auto& [key, value] : dict.entries()) {
    if (kind == SequenceKind::kKeys) {
      items.push_back(key);
    } else if (kind == SequenceKind::kValues) {
      items.push_back(value);
    } else {
      items.emplace_back(Sequence::Of({key, value}, SequenceKind::kTuple));
    }
  }
  return runtime.NewSequence(std::move(items), kind);
}

absl::Status Unsupported(const BoundMethod& method) {
  return absl::InvalidArgumentError(absl::StrCat("the method ", method.receiver.TypeName(), ".",
                                                 method.name, "() is not supported"));
}

absl::StatusOr<Value> CallDictMethod(Runtime& runtime, const BoundMethod& method,
                                     const Arguments& arguments) {
  const Dict& dict = *method.receiver.dict();
  if (method.name == "get") {
    if (!arguments.named.empty()) {
      return absl::InvalidArgumentError("dict.get() takes no keyword arguments");
    }
    OCTAVO_ASSIGN_OR_RETURN(std::vector<const Value*> bound,
                            BindArguments("get", arguments, {"key", "default"}, 1));
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(dict.FindCost(*bound[0])));
    if (!IsHashable(*bound[0])) {
      return absl::InvalidArgumentError(
          absl::StrCat("unhashable type: '", bound[0]->TypeName(), "'"));
    }
    const Value* found = dict.Find(*bound[0]);
    return found != nullptr ? *found : bound[1] != nullptr ? *bound[1] : Value();
  }
  OCTAVO_RETURN_IF_ERROR(BindArguments(method.name, arguments, {}).status());
  if (method.name == "items") return View(runtime, dict, SequenceKind::kItems);
  if (method.name == "keys") return View(runtime, dict, SequenceKind::kKeys);
  if (method.name == "values") return View(runtime, dict, SequenceKind::kValues);
  if (method.name == "copy") return method.receiver;
  return Unsupported(method);
}

absl::StatusOr<Value> CallListMethod(Runtime& runtime, const BoundMethod& method,
                                     const Arguments& arguments) {
  if (method.name == "copy") return method.receiver;
  OCTAVO_ASSIGN_OR_RETURN(std::vector<const Value*> bound,
                          BindArguments(method.name, arguments, {"value"}, 1));
  int64_t count = 0;
  int64_t index = 0;
  for (const Value& item : method.receiver.sequence()->items) {
    OCTAVO_ASSIGN_OR_RETURN(bool equal, EqualCharged(runtime, item, *bound[0]));
    if (equal && method.name == "index") return Value(index);
    count += equal ? 1 : 0;
    ++index;
  }
  if (method.name == "count") return Value(count);
  return absl::InvalidArgumentError("index(): the value is not in the list");
}

}  // namespace

absl::StatusOr<std::vector<const Value*>> BindArguments(
    absl::string_view callee, const Arguments& arguments,
    std::span<const absl::string_view> parameters, size_t required) {
  if (arguments.positional.size() > parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat(callee, " takes at most ", parameters.size(),
                                                   " arguments and got ",
                                                   arguments.positional.size()));
  }
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    auto place = std::find(parameters.begin(), parameters.end(), name);
    if (place == parameters.end()) {
      return absl::InvalidArgumentError(absl::StrCat(callee, " has no parameter '", name, "'"));
    }
    const Value*& slot = bound[static_cast<size_t>(place - parameters.begin())];
    if (slot != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(callee, " got its parameter '", name, "' twice"));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(callee, " needs its parameter '", *(parameters.begin() + i), "'"));
    }
  }
  return bound;
}

MethodStatus FindMethod(const Value& receiver, absl::string_view name) {
  bool is_method = false;
  bool is_mutator = false;
  if (receiver.is_string()) {
    is_method = IsStringMethod(name);
  } else if (receiver.dict() != nullptr) {
    is_method = Holds(kDictMethods, name);
    is_mutator = Holds(kDictMutators, name);
  } else if (const Sequence* sequence = receiver.sequence()) {
    if (sequence->kind == SequenceKind::kList) {
      is_method = Holds(kListMethods, name);
      is_mutator = Holds(kListMutators, name);
    } else if (sequence->kind == SequenceKind::kTuple || sequence->kind == SequenceKind::kRange) {
      is_method = Holds(kTupleMethods, name);
    }
  } else if (receiver.As<Value::LoopPointer>()) {
    is_method = Holds(kLoopMethods, name);
  }
  return is_mutator  ? MethodStatus::kMutator
         : is_method ? MethodStatus::kMethod
                     : MethodStatus::kNone;
}

absl::StatusOr<Value> CallMethod(Runtime& runtime, const BoundMethod& method,
                                 const Arguments& arguments) {
  const Value& receiver = method.receiver;
  if (receiver.is_string()) {
    if (receiver.is_markup() && !IsPlainOnMarkup(method.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the method ", method.name, "() of a string marked safe is not supported"));
    }
    if (method.name == "format") return FormatBraces(runtime, receiver.text(), arguments);
    return CallStringMethod(runtime, method, arguments);
  }
  if (receiver.dict() != nullptr) return CallDictMethod(runtime, method, arguments);
  if (receiver.sequence() != nullptr) return CallListMethod(runtime, method, arguments);
  return Unsupported(method);
}

}  // namespace octavo::jinja
