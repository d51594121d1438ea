#include "common/model/jinja_runtime.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace octavo::jinja {

absl::Status Runtime::WorkExhausted() {
  work_ = limits_.max_work;
  return absl::ResourceExhaustedError(absl::StrCat("rendering takes more than the ",
                                                   limits_.max_work,
                                                   " units of work a template may use (max_work)"));
}

absl::Status Runtime::CheckDepth(int depth) {
  if (depth <= limits_.max_value_depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "a value is nested deeper than ", limits_.max_value_depth, " levels (max_value_depth)"));
}

absl::StatusOr<Value> Runtime::NewString(std::string text, bool is_markup) {
  if (text.size() > limits_.max_string_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a string of ", text.size(), " bytes is longer than the ",
                     limits_.max_string_bytes, " allowed (max_string_bytes)"));
  }
  OCTAVO_RETURN_IF_ERROR(Charge(kObjectCost + TextCost(text.size())));
  return Value::String(std::move(text), is_markup);
}

absl::StatusOr<Value> Runtime::NewSequence(std::vector<Value> items, SequenceKind kind) {
  OCTAVO_RETURN_IF_ERROR(Charge(kObjectCost + kElementCost * items.size()));
  auto sequence = Sequence::Of(std::move(items), kind);
  OCTAVO_RETURN_IF_ERROR(CheckDepth(sequence->depth));
  return Value(std::move(sequence));
}

absl::StatusOr<Value> Runtime::NewDict(std::shared_ptr<Dict> dict) {
  OCTAVO_RETURN_IF_ERROR(Charge(kObjectCost + kEntryCost * dict->entries().size()));
  OCTAVO_RETURN_IF_ERROR(CheckDepth(dict->depth()));
  return Value(Value::DictPointer(std::move(dict)));
}

Namespace* Runtime::NewNamespace() {
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

bool BoundedString::AppendRepeated(absl::string_view text, int64_t count) {
  if (count <= 0 || text.empty()) return true;
  if (static_cast<uint64_t>(count) > (limit_ - text_.size()) / text.size()) {
    exceeded_ = true;
    return false;
  }
  for (int64_t i = 0; i < count; ++i) text_.append(text.data(), text.size());
  return true;
}

absl::Status BoundedString::status() const {
  if (!exceeded_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the text grows past the ", limit_, " bytes allowed (", limit_name_, ")"));
}

}  // namespace octavo::jinja
