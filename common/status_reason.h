#pragma once

// Why a status is not OK, for a program: a reason in UPPER_SNAKE with the numbers behind it, and
// when it is worth trying again. Rooms that know no proto attach them; wire::ToGrpc turns them into
// google.rpc.ErrorInfo and RetryInfo, wire::FromGrpc back. The reasons that clients and operators
// see are listed in scheduler/README.md.
//
// They travel as payloads of the status whose names begin with kReasonPayloads; a message made of
// another status leaves them out (PlainText). An OK status carries none.
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
#include "absl/time/time.h"

namespace octavo {

constexpr char kReasonPayloads[] = "octavo/";

struct StatusReason {
  std::string reason;                          // "CANNOT_FIT"
  std::map<std::string, std::string> numbers;  // "needed_blocks" -> "40"

  friend bool operator==(const StatusReason&, const StatusReason&) = default;
};

// Returns `status` with the reason attached, in place of an earlier one. REQUIRES: `reason` is not
// empty.
absl::Status WithReason(absl::Status status, const StatusReason& reason);
absl::Status WithReason(
    absl::Status status, absl::string_view reason,
    std::initializer_list<std::pair<absl::string_view, absl::AlphaNum>> numbers = {});

bool HasReason(const absl::Status& status);

// Takes the reason out of `status`; absent if none was attached.
std::optional<StatusReason> TakeReason(absl::Status& status);

// Returns `status` with the time after which it is worth trying again. REQUIRES: delay > 0.
absl::Status WithRetryDelay(absl::Status status, absl::Duration delay);

// Zero if none was attached: trying again is not known to help.
absl::Duration RetryDelay(const absl::Status& status);

// "CODE: message", without what is attached.
std::string PlainText(const absl::Status& status);

}  // namespace octavo
