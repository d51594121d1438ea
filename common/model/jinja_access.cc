// Subscripts, attributes, slices and iteration: the second half of jinja_operators.h.

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/jinja_methods.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

// "'dict object' has no attribute 'x'", as Jinja words it. A long key is cut: the value keeps the
// message.
Value MissingAttribute(const Value& object, absl::string_view name) {
  constexpr int64_t kShownCharacters = 80;
  name = name.substr(0, ByteOffset(name, kShownCharacters));
  if (object.is_none())
    return Value::Undefined(absl::StrCat("'None' has no attribute '", name, "'"));
  return Value::Undefined(
      absl::StrCat("'", object.TypeName(), " object' has no attribute '", name, "'"));
}

Value MissingElement(const Value& object, const Value& key) {
  if (key.is_string()) return MissingAttribute(object, key.text());
  std::string what = key.is_integral() ? absl::StrCat(key.integer()) : std::string(key.TypeName());
  return Value::Undefined(absl::StrCat("'", object.TypeName(), " object' has no element ", what));
}

// What Python's getattr would find; the sandbox turns what it finds unsafe into undefined.
std::optional<Value> FindAttribute(const Value& object, absl::string_view name) {
  if (absl::StartsWith(name, "__") || (absl::StartsWith(name, "_") && object.As<const Macro*>())) {
    return Value::Undefined(absl::StrCat("access to attribute '", name, "' of '", object.TypeName(),
                                         "' object is unsafe."));
  }
  if (Namespace* name_space = object.name_space()) {
    const Value* found = name_space->Find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (const Value::LoopPointer* loop = object.As<Value::LoopPointer>()) {
    if (std::optional<Value> attribute = LoopAttribute(**loop, name)) return attribute;
  }
  switch (FindMethod(object, name)) {
    case MethodStatus::kNone:
      return std::nullopt;
    case MethodStatus::kMutator:
      return Value::Undefined(absl::StrCat("access to attribute '", name, "' of '",
                                           object.TypeName(), "' object is unsafe."));
    case MethodStatus::kMethod:
      break;
  }
  return Value(std::make_shared<const BoundMethod>(BoundMethod{object, std::string(name)}));
}

// A sequence's or string's element; nullopt past the ends.
std::optional<Value> ElementAt(const Value& object, int64_t index) {
  if (object.is_string()) {
    const std::string& text = object.text();
    if (index < 0) index += TextLength(text);
    if (index < 0) return std::nullopt;
    size_t begin = ByteOffset(text, index);
    if (begin >= text.size()) return std::nullopt;
    size_t end = begin;
    NextCodePoint(text, &end);
    return Value::String(text.substr(begin, end - begin), object.is_markup());
  }
  const std::vector<Value>& items = object.sequence()->items;
  if (index < 0) index += static_cast<int64_t>(items.size());
  if (index < 0 || index >= static_cast<int64_t>(items.size())) return std::nullopt;
  return items[static_cast<size_t>(index)];
}

bool HasSubscript(const Value& object) {
  if (object.is_string()) return true;
  const Sequence* sequence = object.sequence();
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
          sequence->kind == SequenceKind::kRange);
}

absl::StatusOr<std::optional<int64_t>> SliceBound(const Value* bound) {
  if (bound == nullptr || bound->is_none()) return std::optional<int64_t>();
  if (bound->is_integral()) return std::optional<int64_t>(bound->integer());
  return absl::InvalidArgumentError(
      absl::StrCat("slice indices must be integers or none, not ", bound->TypeName()));
}

struct SliceRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Python's slice.indices(length).
absl::StatusOr<SliceRange> ResolveSlice(int64_t length, const Value* start_value,
                                        const Value* stop_value, const Value* step_value) {
  OCTAVO_ASSIGN_OR_RETURN(std::optional<int64_t> start, SliceBound(start_value));
  OCTAVO_ASSIGN_OR_RETURN(std::optional<int64_t> stop, SliceBound(stop_value));
  OCTAVO_ASSIGN_OR_RETURN(std::optional<int64_t> step_or_none, SliceBound(step_value));
  int64_t step = step_or_none.value_or(1);
  if (step == 0) return absl::InvalidArgumentError("slice step cannot be zero");
  // Steps longer than any sequence take one element at most: clamp, so that nothing below
  // overflows.
  step = std::clamp<int64_t>(step, -length - 1, length + 1);
  if (step == 0) step = 1;
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? length - 1 : length;
  auto place = [&](std::optional<int64_t> bound, int64_t if_absent) {
    if (!bound.has_value()) return if_absent;
    int64_t at = *bound;
    if (at < 0) at = at < -length ? lowest : std::max(at + length, lowest);
    return std::min(at, highest);
  };
  int64_t first = place(start, step < 0 ? highest : lowest);
  int64_t end = place(stop, step < 0 ? lowest : highest);
  SliceRange range{first, step, 0};
  if (step > 0 && first < end) range.count = (end - first - 1) / step + 1;
  if (step < 0 && first > end) range.count = (first - end - 1) / -step + 1;
  return range;
}

}  // namespace

absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return UndefinedError(object);
  // Finding a character takes time in proportion, and so does what an undefined value remembers.
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kObjectCost + (object.is_string() ? object.weight() : 0)));
  if (const Dict* dict = object.dict()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(dict->FindCost(key)));
    const Value* found = IsHashable(key) ? dict->Find(key) : nullptr;
    if (found != nullptr) return *found;
  } else if (HasSubscript(object) && key.is_integral()) {
    if (std::optional<Value> element = ElementAt(object, key.integer())) return *std::move(element);
  }
  if (key.is_string()) {
    if (std::optional<Value> found = FindAttribute(object, key.text())) return *std::move(found);
  }
  return MissingElement(object, key);
}

absl::StatusOr<Value> GetAttribute(const Value& object, absl::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  if (std::optional<Value> found = FindAttribute(object, name)) return *std::move(found);
  if (const Dict* dict = object.dict()) {
    if (const Value* value = dict->FindText(name)) return *value;
  }
  return MissingAttribute(object, name);
}

absl::StatusOr<Value> GetSlice(Runtime& runtime, const Value& object, const Value* start,
                               const Value* stop, const Value* step) {
  if (object.is_undefined()) return UndefinedError(object);
  if (!HasSubscript(object)) {
    return absl::InvalidArgumentError(absl::StrCat("a ", object.TypeName(), " cannot be sliced"));
  }
  OCTAVO_ASSIGN_OR_RETURN(int64_t length, Length(object));
  OCTAVO_ASSIGN_OR_RETURN(SliceRange range, ResolveSlice(length, start, stop, step));
  if (object.is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(object.weight()));
    if (range.step == 1) {
      const std::string& text = object.text();
      size_t begin = ByteOffset(text, range.start);
      absl::string_view rest(text.data() + begin, text.size() - begin);
      return runtime.NewString(std::string(rest.substr(0, ByteOffset(rest, range.count))),
                               object.is_markup());
    }
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * static_cast<uint64_t>(length)));
    std::vector<absl::string_view> characters = SplitCharacters(object.text());
    std::string out;
    for (int64_t i = 0; i < range.count; ++i) {
      absl::StrAppend(&out, characters[static_cast<size_t>(range.start + i * range.step)]);
    }
    return runtime.NewString(std::move(out), object.is_markup());
  }
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * static_cast<uint64_t>(range.count)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(object.sequence()->items[static_cast<size_t>(range.start + i * range.step)]);
  }
  return runtime.NewSequence(std::move(items), object.sequence()->kind);
}

absl::StatusOr<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(kObjectCost * value.text().size()));
    for (absl::string_view character : SplitCharacters(value.text())) {
      items.push_back(Value::String(std::string(character)));
    }
    return items;
  }
  if (const Dict* dict = value.dict()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * dict->entries().size()));
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
    return items;
  }
  Sequence* sequence = value.sequence();
  if (sequence == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value.TypeName(), "' object is not iterable"));
  }
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * sequence->items.size()));
  items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->position),
               sequence->items.end());
  if (sequence->kind == SequenceKind::kGenerator) sequence->position = sequence->items.size();
  return items;
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return TextLength(value.text());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->entries().size());
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->kind != SequenceKind::kGenerator) {
    return static_cast<int64_t>(sequence->items.size());
  }
  if (const Value::LoopPointer* loop = value.As<Value::LoopPointer>()) {
    return LoopAttribute(**loop, "length")->integer();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("object of type '", value.TypeName(), "' has no length"));
}

}  // namespace octavo::jinja
