#pragma once

// Why a status is not OK, for a program: a reason in UPPER_SNAKE and the numbers behind it. Rooms
// that know no proto attach it; wire::ToGrpc turns it into a google.rpc.ErrorInfo.
//
// Thread rule: pure functions.

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace octavo {

struct StatusReason {
  std::string reason;                          // "CANNOT_FIT"
  std::map<std::string, std::string> numbers;  // "needed_blocks" -> "40"

  friend bool operator==(const StatusReason&, const StatusReason&) = default;
};

// Returns `status` with the reason attached. REQUIRES: !status.ok(); names hold neither '=' nor a
// line break, and numbers no line break.
absl::Status WithReason(
    absl::Status status, absl::string_view reason,
    std::initializer_list<std::pair<absl::string_view, absl::AlphaNum>> numbers);

bool HasReason(const absl::Status& status);

// Takes the reason out of `status`; absent if none was attached.
std::optional<StatusReason> TakeReason(absl::Status& status);

}  // namespace octavo
