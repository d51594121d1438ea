#pragma once

// What one render may still use and what it owns: the work and size limits, the namespaces, the
// time. Every operation of the language that visits or builds something takes a Runtime& and
// charges it: that is how a hostile template comes to an end.
//
// Thread rule: one render, one thread, one Runtime.
// Invariants: (1) a string value is at most max_string_bytes. (2) No value is deeper than
// max_value_depth. (3) The memory that values hold is bounded by max_work: building costs in
// proportion.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "common/model/jinja_limits.h"
#include "common/model/jinja_value.h"

namespace octavo::jinja {

// What things cost, in units of work. What allocates costs in proportion to its bytes.
constexpr uint64_t kScopeCost = 16;   // a turn of a loop, a macro's or a block's own variables
constexpr uint64_t kObjectCost = 8;   // a string, a sequence
constexpr uint64_t kElementCost = 3;  // an element of a sequence
constexpr uint64_t kEntryCost = 12;   // an entry of a dict or namespace
// Of reading text once, and of building it.
constexpr uint64_t TextCost(size_t bytes) { return 1 + bytes / 8; }
// Of reading text character by character.
constexpr uint64_t ScanCost(size_t bytes) { return 1 + bytes / 4; }

class Runtime {
 public:
  Runtime(const JinjaLimits& limits, std::optional<absl::CivilSecond> now)
      : limits_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // ResourceExhausted when the render has done more than max_work.
  absl::Status Charge(uint64_t units) {
    if (units <= limits_.max_work - work_) {
      work_ += units;
      return absl::OkStatus();
    }
    return WorkExhausted();
  }

  // The only makers of strings, sequences and dicts at run time. They charge for what they make and
  // keep the invariants.
  absl::StatusOr<Value> NewString(std::string text, bool is_markup = false);
  absl::StatusOr<Value> NewSequence(std::vector<Value> items, SequenceKind kind);
  absl::StatusOr<Value> NewDict(std::shared_ptr<Dict> dict);
  Namespace* NewNamespace();

  const JinjaLimits& limits() const { return limits_; }
  const std::optional<absl::CivilSecond>& now() const { return now_; }

 private:
  absl::Status WorkExhausted();
  absl::Status CheckDepth(int depth);

  const JinjaLimits limits_;
  const std::optional<absl::CivilSecond> now_;
  uint64_t work_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

// A string under construction that refuses to outgrow a limit. Needed wherever the result can be
// larger than the operands' sum: replace, join, repetition, padding, indentation, printing of
// shared parts.
class BoundedString {
 public:
  explicit BoundedString(size_t limit, absl::string_view limit_name = "max_string_bytes")
      : limit_(limit), limit_name_(limit_name) {}

  // False, and ignores the text, once the limit would be passed; status() then tells.
  bool Append(absl::string_view text) {
    if (text.size() > limit_ - text_.size()) {
      exceeded_ = true;
      return false;
    }
    text_.append(text.data(), text.size());
    return true;
  }
  bool AppendRepeated(absl::string_view text, int64_t count);

  // ResourceExhausted when an Append was refused.
  absl::Status status() const;
  size_t size() const { return text_.size(); }
  std::string Take() { return std::move(text_); }

 private:
  size_t limit_;
  absl::string_view limit_name_;
  std::string text_;
  bool exceeded_ = false;
};

}  // namespace octavo::jinja
