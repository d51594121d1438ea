#include "common/model/jinja_value.h"

#include <algorithm>

namespace octavo::jinja {
namespace {

// Sums of weights stop here, far beyond what a render may do and far from overflow.
constexpr uint64_t kMaxWeight = uint64_t{1} << 40;

uint64_t AddWeights(uint64_t a, uint64_t b) { return std::min(a + b, kMaxWeight); }

// An int and a float are equal when they are the same real number, not when the int rounds to the
// float.
bool EqualIntegerAndFloat(int64_t integer, double number) {
  return number >= -0x1p63 && number < 0x1p63 && static_cast<double>(integer) == number &&
         static_cast<int64_t>(number) == integer;
}

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_integral()) return EqualIntegerAndFloat(a.integer(), b.number());
  if (b.is_integral()) return EqualIntegerAndFloat(b.integer(), a.number());
  return a.number() == b.number();
}

// a and b may be one object: a generator equals itself, and so does everything that is compared by
// identity.
bool EqualSequences(const Sequence& a, const Sequence& b) {
  if (&a == &b && a.kind == SequenceKind::kGenerator) return true;
  if (a.kind != b.kind || a.kind == SequenceKind::kGenerator || a.kind == SequenceKind::kValues) {
    return &a == &b;
  }
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), Equal);
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&b](const Dict::Entry& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

}  // namespace

Value Value::String(std::string text, bool is_markup) {
  return Value(std::make_shared<const StringObject>(StringObject{std::move(text), is_markup}));
}

Value Value::Undefined(std::string message) {
  Value value;
  value.data_ = std::make_shared<const UndefinedObject>(UndefinedObject{std::move(message)});
  return value;
}

bool Value::Truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_integral()) return integer() != 0;
  if (const double* number = As<double>()) return *number != 0;
  if (is_string()) return !text().empty();
  if (const Dict* map = dict()) return !map->entries().empty();
  if (const Sequence* list = sequence()) {
    return list->kind == SequenceKind::kGenerator || !list->items.empty();
  }
  return true;
}

absl::string_view Value::TypeName() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (As<bool>()) return "bool";
  if (As<int64_t>()) return "int";
  if (As<double>()) return "float";
  if (is_string()) return is_markup() ? "Markup" : "str";
  if (dict() != nullptr) return "dict";
  if (name_space() != nullptr) return "Namespace";
  if (As<const Macro*>()) return "Macro";
  if (As<Function>()) return "function";
  if (As<MethodPointer>()) return "builtin_function_or_method";
  if (As<LoopPointer>()) return "LoopContext";
  switch (sequence()->kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kKeys:
      return "dict_keys";
    case SequenceKind::kValues:
      return "dict_values";
    case SequenceKind::kItems:
      return "dict_items";
    case SequenceKind::kGenerator:
      break;
  }
  return "generator";
}

int Value::depth() const {
  if (const Dict* map = dict()) return map->depth();
  if (const Sequence* list = sequence()) return list->depth;
  if (const MethodPointer* method = As<MethodPointer>()) return 1 + (*method)->receiver.depth();
  return 0;
}

uint64_t Value::weight() const {
  if (is_string()) return 1 + text().size() / 8;
  if (const Dict* map = dict()) return map->weight();
  if (const Sequence* list = sequence()) return list->weight;
  return 1;
}

std::shared_ptr<Sequence> Sequence::Of(std::vector<Value> values, SequenceKind kind) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& value : values) {
    sequence->depth = std::max(sequence->depth, 1 + value.depth());
    sequence->weight = AddWeights(sequence->weight, value.weight());
  }
  sequence->items = std::move(values);
  return sequence;
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max({depth_, 1 + key.depth(), 1 + value.depth()});
  weight_ = AddWeights(weight_, AddWeights(key.weight(), value.weight()));
  if (const Value* present = Find(key)) {
    *const_cast<Value*>(present) = std::move(value);
    return;
  }
  if (key.is_string()) {
    text_index_.emplace(key.text(), entries_.size());
  } else {
    other_index_.push_back(entries_.size());
    // Such keys are compared one by one.
    weight_ = AddWeights(weight_, other_index_.size());
  }
  entries_.emplace_back(std::move(key), std::move(value));
}

uint64_t Dict::FindCost(const Value& key) const {
  return key.is_string() ? key.weight() : key.weight() * (1 + other_index_.size());
}

const Value* Dict::Find(const Value& key) const {
  if (key.is_string()) return FindText(key.text());
  for (size_t index : other_index_) {
    if (Equal(entries_[index].first, key)) return &entries_[index].second;
  }
  return nullptr;
}

const Value* Dict::FindText(absl::string_view key) const {
  auto found = text_index_.find(key);
  return found == text_index_.end() ? nullptr : &entries_[found->second].second;
}

void Namespace::Set(absl::string_view name, Value value) {
  auto [place, added] = index_.try_emplace(std::string(name), entries_.size());
  if (added) {
    entries_.emplace_back(std::string(name), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

const Value* Namespace::Find(absl::string_view name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

bool IsHashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  const Sequence* list = value.sequence();
  if (list == nullptr || list->kind == SequenceKind::kGenerator ||
      list->kind == SequenceKind::kRange)
    return true;
  return list->kind == SequenceKind::kTuple &&
         std::all_of(list->items.begin(), list->items.end(), IsHashable);
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.sequence() && b.sequence()) return EqualSequences(*a.sequence(), *b.sequence());
  if (a.dict() && b.dict()) return EqualDicts(*a.dict(), *b.dict());
  if (a.name_space() && b.name_space()) return a.name_space() == b.name_space();
  if (a.As<const Macro*>() && b.As<const Macro*>()) {
    return *a.As<const Macro*>() == *b.As<const Macro*>();
  }
  if (a.As<Function>() && b.As<Function>()) return *a.As<Function>() == *b.As<Function>();
  if (a.As<Value::LoopPointer>() && b.As<Value::LoopPointer>()) {
    return *a.As<Value::LoopPointer>() == *b.As<Value::LoopPointer>();
  }
  if (a.As<Value::MethodPointer>() && b.As<Value::MethodPointer>()) {
    const BoundMethod& left = **a.As<Value::MethodPointer>();
    const BoundMethod& right = **b.As<Value::MethodPointer>();
    return left.name == right.name && Equal(left.receiver, right.receiver);
  }
  return false;
}

absl::Status UndefinedError(const Value& undefined) {
  return absl::InvalidArgumentError(undefined.undefined_message());
}

}  // namespace octavo::jinja
