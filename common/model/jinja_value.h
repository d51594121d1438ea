#pragma once

// The values a template computes with: Python's None, bool, int (64 bits here; overflow is an
// error), float, str, list, tuple, range, dict and its views, a generator, plus Jinja's undefined,
// namespace, loop, macro and function. Equality, truth and names are Python's.
//
// Values are immutable, as in Jinja's immutable sandbox, with two exceptions: a namespace's
// attributes and a generator's position. Namespaces and macros belong to the render
// (jinja_runtime.h) and are borrowed here, so no cycle of owners can form. Thread rule: values of
// one render stay on its thread. Invariants: (1) strings are valid UTF-8. (2) depth() of a value is
// bounded by JinjaLimits::max_value_depth, so walking down one cannot exhaust the stack. (3)
// weight() is the work that walking the whole value takes, shared
// parts counted each time; it stops growing at 2^40, so that sums and products of weights do not
// overflow.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::jinja {

class Value;
class Dict;
class Namespace;
struct LoopState;  // jinja_interpreter.h
struct Macro;      // jinja_interpreter.h

// Which of Python's iterables a Sequence stands for: it decides printing, equality and what may be
// done with it.
enum class SequenceKind : uint8_t {
  kList,
  kTuple,
  kRange,
  kKeys,
  kValues,
  kItems,
  kGenerator,  // of map, select, ...: read once, no length, no subscript
};

// The global functions of a template.
enum class Function : uint8_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

struct StringObject {
  std::string text;
  bool is_markup = false;  // what `safe` returns; adding to it escapes the other side
};

struct UndefinedObject {
  std::string message;  // why it is undefined: what an operation on it reports
};

struct Sequence;

// `receiver.name`, not called yet: a method of a string, dict, list, tuple or loop.
struct BoundMethod;

class Value {
 public:
  struct None {};
  using StringPointer = std::shared_ptr<const StringObject>;
  using SequencePointer = std::shared_ptr<Sequence>;
  using DictPointer = std::shared_ptr<const Dict>;
  using UndefinedPointer = std::shared_ptr<const UndefinedObject>;
  using MethodPointer = std::shared_ptr<const BoundMethod>;
  using LoopPointer = std::shared_ptr<LoopState>;

  Value() = default;  // None
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(StringPointer value) : data_(std::move(value)) {}
  explicit Value(SequencePointer value) : data_(std::move(value)) {}
  explicit Value(DictPointer value) : data_(std::move(value)) {}
  explicit Value(Namespace* value) : data_(value) {}
  explicit Value(const Macro* value) : data_(value) {}
  explicit Value(Function value) : data_(value) {}
  explicit Value(MethodPointer value) : data_(std::move(value)) {}
  explicit Value(LoopPointer value) : data_(std::move(value)) {}
  static Value String(std::string text, bool is_markup = false);
  static Value Undefined(std::string message);

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  bool is_none() const { return As<None>() != nullptr; }
  bool is_undefined() const { return As<UndefinedPointer>() != nullptr; }
  bool is_string() const { return As<StringPointer>() != nullptr; }
  bool is_markup() const { return is_string() && (*As<StringPointer>())->is_markup; }
  // An int or a bool, which Python counts among its ints.
  bool is_integral() const { return As<int64_t>() != nullptr || As<bool>() != nullptr; }
  bool is_number() const { return is_integral() || As<double>() != nullptr; }

  // REQUIRES: the value is of that kind.
  const std::string& text() const { return (*As<StringPointer>())->text; }
  const std::string& undefined_message() const { return (*As<UndefinedPointer>())->message; }
  int64_t integer() const { return As<bool>() ? int64_t{*As<bool>()} : *As<int64_t>(); }
  double number() const { return As<double>() ? *As<double>() : static_cast<double>(integer()); }

  // Null when the value is something else.
  const Dict* dict() const { return As<DictPointer>() ? As<DictPointer>()->get() : nullptr; }
  Sequence* sequence() const {
    return As<SequencePointer>() ? As<SequencePointer>()->get() : nullptr;
  }
  Namespace* name_space() const { return As<Namespace*>() ? *As<Namespace*>() : nullptr; }

  bool Truth() const;
  // Python's type name: "str", "dict", "NoneType", ...
  absl::string_view TypeName() const;
  int depth() const;
  uint64_t weight() const;

 private:
  std::variant<None, bool, int64_t, double, StringPointer, SequencePointer, DictPointer,
               UndefinedPointer, Namespace*, const Macro*, Function, MethodPointer, LoopPointer>
      data_;
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  size_t position = 0;  // of a generator: items before it have been read
  int depth = 1;
  uint64_t weight = 1;

  // A list or tuple made of `values`; depth and weight follow from them.
  static std::shared_ptr<Sequence> Of(std::vector<Value> values, SequenceKind kind);
};

// Insertion-ordered, as Python's dict.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // A later value replaces an earlier one in its place. REQUIRES: key is hashable.
  void Set(Value key, Value value);
  // What Find(key), and asking whether the key is hashable, cost.
  uint64_t FindCost(const Value& key) const;
  // Null when absent.
  const Value* Find(const Value& key) const;
  const Value* FindText(absl::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }
  uint64_t weight() const { return weight_; }

 private:
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> text_index_;
  std::vector<size_t> other_index_;  // entries whose key is not a string
  int depth_ = 1;
  uint64_t weight_ = 1;
};

// What `namespace()` returns: the one thing a template can assign to across scopes.
class Namespace {
 public:
  void Set(absl::string_view name, Value value);
  const Value* Find(absl::string_view name) const;
  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, Value>> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

struct BoundMethod {
  Value receiver;
  std::string name;
};

bool IsHashable(const Value& value);
// Python's ==. The caller charges for it: it visits at most the smaller of both weights.
bool Equal(const Value& a, const Value& b);

// The error of whatever operation met an undefined value, in Jinja's words.
absl::Status UndefinedError(const Value& undefined);

}  // namespace octavo::jinja
