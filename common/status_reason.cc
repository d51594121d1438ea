#include "common/status_reason.h"

#include <cstdint>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"

namespace octavo {
namespace {

constexpr char kReason[] = "octavo/reason";
constexpr char kNumberPrefix[] = "octavo/number/";  // and its name; one payload a number
constexpr char kRetryNanoseconds[] = "octavo/retry_ns";

}  // namespace

absl::Status WithReason(absl::Status status, const StatusReason& reason) {
  CHECK(!reason.reason.empty());
  TakeReason(status);
  status.SetPayload(kReason, absl::Cord(reason.reason));
  for (const auto& [name, number] : reason.numbers) {
    status.SetPayload(absl::StrCat(kNumberPrefix, name), absl::Cord(number));
  }
  return status;
}

absl::Status WithReason(
    absl::Status status, absl::string_view reason,
    std::initializer_list<std::pair<absl::string_view, absl::AlphaNum>> numbers) {
  StatusReason value{.reason = std::string(reason)};
  for (const auto& [name, number] : numbers) {
    value.numbers.emplace(std::string(name), std::string(number.Piece()));
  }
  return WithReason(std::move(status), value);
}

bool HasReason(const absl::Status& status) { return status.GetPayload(kReason).has_value(); }

std::optional<StatusReason> TakeReason(absl::Status& status) {
  const auto reason = status.GetPayload(kReason);
  if (!reason) return std::nullopt;
  StatusReason result{.reason = std::string(*reason)};
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (absl::ConsumePrefix(&url, kNumberPrefix)) {
      result.numbers.emplace(std::string(url), std::string(payload));
    }
  });
  status.ErasePayload(kReason);
  for (const auto& [name, number] : result.numbers) {
    status.ErasePayload(absl::StrCat(kNumberPrefix, name));
  }
  return result;
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  CHECK_GT(delay, absl::ZeroDuration());
  status.SetPayload(kRetryNanoseconds, absl::Cord(absl::StrCat(absl::ToInt64Nanoseconds(delay))));
  return status;
}

absl::Duration RetryDelay(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryNanoseconds);
  int64_t nanoseconds = 0;
  if (payload) CHECK(absl::SimpleAtoi(std::string(*payload), &nanoseconds));
  return absl::Nanoseconds(nanoseconds);
}

std::string PlainText(const absl::Status& status) {
  return status.ToString(absl::StatusToStringMode::kWithNoExtraData);
}

}  // namespace octavo
