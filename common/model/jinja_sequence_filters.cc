// The filters of sequences and dicts: the second half of jinja_filters.h.

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/jinja_filters.h"
#include "common/model/jinja_operators.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_sort.h"
#include "common/model/jinja_string_methods.h"
#include "common/model/jinja_tests.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

using Bound = std::vector<const Value*>;

bool TruthOf(const Value* value) { return value != nullptr && value->Truth(); }

// "a.0.b" as the keys a, 0, b.
absl::StatusOr<std::vector<Value>> AttributePath(Runtime& runtime, const Value* attribute) {
  std::vector<Value> path;
  if (attribute == nullptr || attribute->is_none()) return path;
  if (!attribute->is_string()) return std::vector<Value>{*attribute};
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kObjectCost * attribute->text().size()));
  for (absl::string_view part : absl::StrSplit(attribute->text(), '.')) {
    int64_t index = 0;
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == part.npos &&
                          absl::SimpleAtoi(part, &index);
    path.push_back(is_index ? Value(index) : Value::String(std::string(part)));
  }
  return path;
}

// item[path...]; what is missing on the way becomes `if_missing` where that is given.
absl::StatusOr<Value> Follow(Runtime& runtime, Value item, const std::vector<Value>& path,
                             const Value* if_missing = nullptr) {
  for (const Value& key : path) {
    OCTAVO_ASSIGN_OR_RETURN(item, GetItem(runtime, item, key));
    if (if_missing != nullptr && !if_missing->is_none() && item.is_undefined()) item = *if_missing;
  }
  return item;
}

absl::StatusOr<Value> IgnoreCase(Runtime& runtime, Value value) {
  if (!value.is_string()) return value;
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(ScanCost(value.text().size())));
  return runtime.NewString(Lower(value.text()));
}

// What `item` is compared by: its attribute, in lower case unless case counts.
absl::StatusOr<Value> KeyOf(Runtime& runtime, const Value& item, const std::vector<Value>& path,
                            bool is_case_sensitive) {
  OCTAVO_ASSIGN_OR_RETURN(Value key, Follow(runtime, item, path));
  return is_case_sensitive ? absl::StatusOr<Value>(std::move(key))
                           : IgnoreCase(runtime, std::move(key));
}

absl::StatusOr<Value> SortFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  // "a,b" sorts by a, then by b.
  std::vector<std::vector<Value>> paths;
  if (bound[2] != nullptr && bound[2]->is_string()) {
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(kObjectCost * bound[2]->text().size()));
    for (absl::string_view part : absl::StrSplit(bound[2]->text(), ',')) {
      const Value attribute = Value::String(std::string(part));
      OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> path, AttributePath(runtime, &attribute));
      paths.push_back(std::move(path));
    }
  } else {
    OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> path, AttributePath(runtime, bound[2]));
    paths.push_back(std::move(path));
  }
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    std::vector<Value> keys;
    for (const std::vector<Value>& path : paths) {
      OCTAVO_ASSIGN_OR_RETURN(Value key, KeyOf(runtime, item, path, TruthOf(bound[1])));
      keys.push_back(std::move(key));
    }
    OCTAVO_ASSIGN_OR_RETURN(Value key, runtime.NewSequence(std::move(keys), SequenceKind::kList));
    keyed.push_back({std::move(key), std::move(item)});
  }
  return Sorted(runtime, std::move(keyed), TruthOf(bound[0]));
}

// A dict's entries as tuples.
absl::StatusOr<std::vector<Value>> Pairs(Runtime& runtime, const Dict& dict) {
  std::vector<Value> pairs;
  pairs.reserve(dict.entries().size());
  for (const auto& [key, value] : dict.entries()) {
    OCTAVO_ASSIGN_OR_RETURN(Value pair, runtime.NewSequence({key, value}, SequenceKind::kTuple));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

absl::StatusOr<Value> DictSortFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  if (input.dict() == nullptr) {
    return input.is_undefined() ? UndefinedError(input)
                                : absl::InvalidArgumentError(absl::StrCat(
                                      "dictsort: a ", input.TypeName(), " is not a dict"));
  }
  const std::string by = bound[1] != nullptr && bound[1]->is_string() ? bound[1]->text() : "key";
  if (by != "key" && by != "value") {
    return absl::InvalidArgumentError("dictsort sorts by \"key\" or \"value\"");
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> pairs, Pairs(runtime, *input.dict()));
  std::vector<Keyed> keyed;
  for (Value& pair : pairs) {
    Value key = pair.sequence()->items[by == "key" ? 0 : 1];
    if (!TruthOf(bound[0])) {
      OCTAVO_ASSIGN_OR_RETURN(key, IgnoreCase(runtime, std::move(key)));
    }
    keyed.push_back({std::move(key), std::move(pair)});
  }
  return Sorted(runtime, std::move(keyed), TruthOf(bound[2]));
}

absl::StatusOr<Value> ItemsFilter(Runtime& runtime, const Value& input, const Bound&) {
  if (input.is_undefined()) return runtime.NewSequence({}, SequenceKind::kGenerator);
  if (input.dict() == nullptr) {
    return absl::InvalidArgumentError("items: the value is not a mapping");
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> pairs, Pairs(runtime, *input.dict()));
  return runtime.NewSequence(std::move(pairs), SequenceKind::kGenerator);
}

absl::StatusOr<Value> JoinFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  std::string separator;
  if (bound[0] != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(separator, ToText(runtime, *bound[0]));
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(runtime, bound[1]));
  std::vector<std::string> parts;
  for (const Value& item : items) {
    OCTAVO_ASSIGN_OR_RETURN(Value value, Follow(runtime, item, path));
    OCTAVO_ASSIGN_OR_RETURN(std::string part, ToText(runtime, value));
    parts.push_back(std::move(part));
  }
  return JoinTexts(runtime, separator, parts);
}

absl::StatusOr<Value> FirstFilter(Runtime& runtime, const Value& input, const Bound&) {
  if (Sequence* sequence = input.sequence()) {
    if (sequence->position >= sequence->items.size()) {
      return Value::Undefined("No first item, sequence was empty.");
    }
    const Value& first = sequence->items[sequence->position];
    if (sequence->kind == SequenceKind::kGenerator) ++sequence->position;
    return first;
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  if (items.empty()) return Value::Undefined("No first item, sequence was empty.");
  return items.front();
}

absl::StatusOr<Value> LastFilter(Runtime& runtime, const Value& input, const Bound&) {
  if (const Sequence* sequence = input.sequence()) {
    if (sequence->kind == SequenceKind::kGenerator) {
      return absl::InvalidArgumentError("last: a generator cannot be reversed");
    }
    if (sequence->items.empty()) return Value::Undefined("No last item, sequence was empty.");
    return sequence->items.back();
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  if (items.empty()) return Value::Undefined("No last item, sequence was empty.");
  return items.back();
}

absl::StatusOr<Value> ListFilter(Runtime& runtime, const Value& input, const Bound&) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  return runtime.NewSequence(std::move(items), SequenceKind::kList);
}

absl::StatusOr<Value> ReverseFilter(Runtime& runtime, const Value& input, const Bound&) {
  if (input.is_string()) {
    const Value step(int64_t{-1});
    return GetSlice(runtime, input, nullptr, nullptr, &step);
  }
  const bool was_generator =
      input.sequence() != nullptr && input.sequence()->kind == SequenceKind::kGenerator;
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  std::reverse(items.begin(), items.end());
  return runtime.NewSequence(std::move(items),
                             was_generator ? SequenceKind::kList : SequenceKind::kGenerator);
}

absl::StatusOr<Value> UniqueFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(runtime, bound[1]));
  absl::flat_hash_set<std::string> seen_texts;
  std::vector<Value> seen_others;
  std::vector<Value> unique;
  for (Value& item : items) {
    OCTAVO_ASSIGN_OR_RETURN(Value key, KeyOf(runtime, item, path, TruthOf(bound[0])));
    OCTAVO_RETURN_IF_ERROR(runtime.Charge(key.weight()));
    if (!IsHashable(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("unique: unhashable type: '", key.TypeName(), "'"));
    }
    bool is_new = true;
    if (key.is_string()) {
      is_new = seen_texts.insert(key.text()).second;
    } else {
      for (const Value& other : seen_others) {
        OCTAVO_ASSIGN_OR_RETURN(bool equal, EqualCharged(runtime, key, other));
        if (equal) is_new = false;
      }
      if (is_new) seen_others.push_back(key);
    }
    if (is_new) unique.push_back(std::move(item));
  }
  return runtime.NewSequence(std::move(unique), SequenceKind::kGenerator);
}

absl::StatusOr<Value> Extreme(Runtime& runtime, const Value& input, const Bound& bound,
                              bool wants_max) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(runtime, bound[1]));
  Value best = items.front();
  OCTAVO_ASSIGN_OR_RETURN(Value best_key, KeyOf(runtime, best, path, TruthOf(bound[0])));
  for (size_t i = 1; i < items.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Value key, KeyOf(runtime, items[i], path, TruthOf(bound[0])));
    OCTAVO_ASSIGN_OR_RETURN(
        bool better, wants_max ? Less(runtime, best_key, key) : Less(runtime, key, best_key));
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}
absl::StatusOr<Value> MinFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  return Extreme(runtime, input, bound, false);
}
absl::StatusOr<Value> MaxFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  return Extreme(runtime, input, bound, true);
}

absl::StatusOr<Value> SumFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(runtime, bound[0]));
  Value sum = bound[1] != nullptr ? *bound[1] : Value(int64_t{0});
  if (sum.is_string()) return absl::InvalidArgumentError("sum: strings cannot be summed");
  for (const Value& item : items) {
    OCTAVO_ASSIGN_OR_RETURN(Value value, Follow(runtime, item, path));
    OCTAVO_ASSIGN_OR_RETURN(sum, ApplyBinary(runtime, BinaryOperator::kAdd, sum, value));
  }
  return sum;
}

absl::StatusOr<Value> BatchFilter(Runtime& runtime, const Value& input, const Bound& bound) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  if (!bound[0]->is_integral() || bound[0]->integer() < 1) {
    return absl::InvalidArgumentError("batch: the size must be a positive integer");
  }
  const auto size = static_cast<uint64_t>(bound[0]->integer());
  std::vector<Value> batches;
  for (size_t at = 0; at < items.size();) {
    const size_t count = std::min<uint64_t>(size, items.size() - at);
    std::vector<Value> batch(items.begin() + static_cast<std::ptrdiff_t>(at),
                             items.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (bound[1] != nullptr && !bound[1]->is_none() && batch.size() < size) {
      OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * std::min(size, uint64_t{1} << 40)));
      batch.resize(size, *bound[1]);
    }
    OCTAVO_ASSIGN_OR_RETURN(Value list, runtime.NewSequence(std::move(batch), SequenceKind::kList));
    batches.push_back(std::move(list));
  }
  return runtime.NewSequence(std::move(batches), SequenceKind::kGenerator);
}

absl::StatusOr<Value> MapFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  std::vector<Value> mapped;
  mapped.reserve(items.size());
  if (!arguments.positional.empty()) {
    const Value& name = arguments.positional.front();
    if (!name.is_string()) return absl::InvalidArgumentError("map needs the name of a filter");
    const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()},
                         arguments.named};
    for (const Value& item : items) {
      OCTAVO_ASSIGN_OR_RETURN(Value value, ApplyFilter(runtime, name.text(), item, rest));
      mapped.push_back(std::move(value));
    }
    return runtime.NewSequence(std::move(mapped), SequenceKind::kGenerator);
  }
  OCTAVO_ASSIGN_OR_RETURN(Bound bound,
                          BindArguments("map", arguments, {"attribute", "default"}, 1));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Value> path, AttributePath(runtime, bound[0]));
  for (const Value& item : items) {
    OCTAVO_ASSIGN_OR_RETURN(Value value, Follow(runtime, item, path, bound[1]));
    mapped.push_back(std::move(value));
  }
  return runtime.NewSequence(std::move(mapped), SequenceKind::kGenerator);
}

// select, reject and their attr forms: the items whose (attribute's) test result is `wanted`.
absl::StatusOr<Value> Choose(Runtime& runtime, const Value& input, const Arguments& arguments,
                             bool by_attribute, bool wanted) {
  if (!input.Truth()) return runtime.NewSequence({}, SequenceKind::kGenerator);
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(runtime, input));
  size_t used = by_attribute ? 1 : 0;
  if (arguments.positional.size() < used) {
    return absl::InvalidArgumentError("selectattr and rejectattr need the name of an attribute");
  }
  OCTAVO_ASSIGN_OR_RETURN(
      const std::vector<Value> path,
      AttributePath(runtime, by_attribute ? &arguments.positional.front() : nullptr));
  const Value* test = used < arguments.positional.size() ? &arguments.positional[used] : nullptr;
  if (test != nullptr && !test->is_string()) {
    return absl::InvalidArgumentError("select and reject need the name of a test");
  }
  if (test != nullptr) ++used;
  const Arguments rest{{arguments.positional.begin() + static_cast<std::ptrdiff_t>(used),
                        arguments.positional.end()},
                       arguments.named};
  std::vector<Value> chosen;
  for (Value& item : items) {
    OCTAVO_ASSIGN_OR_RETURN(Value subject, Follow(runtime, item, path));
    bool result = subject.Truth();
    if (test != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(result, ApplyTest(runtime, test->text(), subject, rest));
    }
    if (result == wanted) chosen.push_back(std::move(item));
  }
  return runtime.NewSequence(std::move(chosen), SequenceKind::kGenerator);
}
absl::StatusOr<Value> SelectFilter(Runtime& runtime, const Value& input, const Arguments& given) {
  return Choose(runtime, input, given, false, true);
}
absl::StatusOr<Value> RejectFilter(Runtime& runtime, const Value& input, const Arguments& given) {
  return Choose(runtime, input, given, false, false);
}
absl::StatusOr<Value> SelectAttrFilter(Runtime& runtime, const Value& input,
                                       const Arguments& given) {
  return Choose(runtime, input, given, true, true);
}
absl::StatusOr<Value> RejectAttrFilter(Runtime& runtime, const Value& input,
                                       const Arguments& given) {
  return Choose(runtime, input, given, true, false);
}

}  // namespace

const FilterTable& SequenceFilters() {
  static const auto* filters = new FilterTable{
      {"sort", {SortFilter, {"reverse", "case_sensitive", "attribute"}}},
      {"dictsort", {DictSortFilter, {"case_sensitive", "by", "reverse"}}},
      {"items", {ItemsFilter, {}}},
      {"join", {JoinFilter, {"d", "attribute"}}},
      {"first", {FirstFilter, {}}},
      {"last", {LastFilter, {}}},
      {"list", {ListFilter, {}}},
      {"reverse", {ReverseFilter, {}}},
      {"unique", {UniqueFilter, {"case_sensitive", "attribute"}}},
      {"min", {MinFilter, {"case_sensitive", "attribute"}}},
      {"max", {MaxFilter, {"case_sensitive", "attribute"}}},
      {"sum", {SumFilter, {"attribute", "start"}}},
      {"batch", {BatchFilter, {"linecount", "fill_with"}, 1}},
      {"map", {nullptr, {}, 0, MapFilter}},
      {"select", {nullptr, {}, 0, SelectFilter}},
      {"reject", {nullptr, {}, 0, RejectFilter}},
      {"selectattr", {nullptr, {}, 0, SelectAttrFilter}},
      {"rejectattr", {nullptr, {}, 0, RejectAttrFilter}},
  };
  return *filters;
}

}  // namespace octavo::jinja
