#include "common/status_reason.h"

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_split.h"

namespace octavo {
namespace {

// One line with the reason, then one "name=number" a line.
constexpr char kPayloadUrl[] = "octavo/reason";

}  // namespace

absl::Status WithReason(
    absl::Status status, absl::string_view reason,
    std::initializer_list<std::pair<absl::string_view, absl::AlphaNum>> numbers) {
  std::string text(reason);
  for (const auto& [name, number] : numbers) absl::StrAppend(&text, "\n", name, "=", number);
  status.SetPayload(kPayloadUrl, absl::Cord(text));
  return status;
}

bool HasReason(const absl::Status& status) { return status.GetPayload(kPayloadUrl).has_value(); }

std::optional<StatusReason> TakeReason(absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload) return std::nullopt;
  status.ErasePayload(kPayloadUrl);
  const std::vector<std::string> lines = absl::StrSplit(std::string(*payload), '\n');
  StatusReason result{.reason = lines.front()};
  for (size_t i = 1; i < lines.size(); ++i) {
    result.numbers.insert(absl::StrSplit(lines[i], absl::MaxSplits('=', 1)));
  }
  return result;
}

}  // namespace octavo
