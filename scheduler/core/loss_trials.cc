#include "scheduler/core/loss_trials.h"

#include <algorithm>

namespace octavo {

std::optional<LostRow> LossTrials::OnLoss(std::span<const LostRow> rows) {
  std::vector<Suspect> suspects;
  for (const LostRow& row : rows) {
    const auto it = std::find_if(suspects.begin(), suspects.end(), [&](const Suspect& suspect) {
      return suspect.request_id == row.request_id;
    });
    Suspect& suspect =
        it != suspects.end() ? *it : suspects.emplace_back(Suspect{.request_id = row.request_id});
    suspect.end = std::max(suspect.end, row.first_position + row.token_count);
  }
  if (suspects.empty()) return std::nullopt;
  groups_.clear();
  if (suspects.size() > 1) {
    const auto half = static_cast<ptrdiff_t>((suspects.size() + 1) / 2);
    AddGroup({suspects.begin(), suspects.begin() + half});
    AddGroup({suspects.begin() + half, suspects.end()});
    return std::nullopt;
  }
  std::vector<LostRow> alone;
  for (LostRow row : rows) {
    if (row.step != rows.front().step) break;
    row.step = {};
    alone.push_back(row);
  }
  if (alone == last_alone_) {
    last_alone_.clear();
    return rows.front();
  }
  last_alone_ = std::move(alone);
  AddGroup(suspects);
  return std::nullopt;
}

bool LossTrials::Admits(RequestId id) const {
  if (groups_.empty()) return true;
  const std::vector<RequestId>& members = groups_.front().members;
  return std::find(members.begin(), members.end(), id) != members.end();
}

void LossTrials::Clear(RequestId id) {
  std::vector<Suspect>& pending = groups_.front().pending;
  std::erase_if(pending, [&](const Suspect& suspect) { return suspect.request_id == id; });
  if (pending.empty()) groups_.pop_front();
}

void LossTrials::AddGroup(std::span<const Suspect> suspects) {
  Group& group = groups_.emplace_back();
  group.pending.assign(suspects.begin(), suspects.end());
  for (const Suspect& suspect : suspects) group.members.push_back(suspect.request_id);
}

}  // namespace octavo
