#include "scheduler/core/drain_rate.h"

#include <algorithm>

namespace octavo {

void DrainRate::Restart(absl::Time now) {
  since_ = now;
  ends_.clear();
}

void DrainRate::OnRequestEnded(absl::Time now, uint64_t prompt_tokens) {
  ends_.push_back({now, tokens_});
  tokens_ += prompt_tokens;
  while (ends_.size() > kMaxEnds || ends_.front().at < now - kWindow) {
    since_ = std::max(since_, ends_.front().at);
    ends_.pop_front();
  }
}

absl::Time DrainRate::Since(absl::Time now) const { return std::max(since_, now - kWindow); }

// What since_ excludes was dropped, so only the window is looked for.
std::deque<DrainRate::End>::const_iterator DrainRate::First(absl::Time now) const {
  return std::partition_point(ends_.begin(), ends_.end(),
                              [&](const End& end) { return end.at < now - kWindow; });
}

absl::Duration DrainRate::Extrapolate(uint64_t count, uint64_t measured, absl::Time now) const {
  const absl::Duration span = std::max(now - Since(now), kMinSpan);
  const absl::Duration time =
      measured == 0 ? span : span * (static_cast<double>(count) / static_cast<double>(measured));
  return std::clamp(time, kShortest, kLongest);
}

absl::Duration DrainRate::TimeForRequests(uint64_t count, absl::Time now) const {
  return Extrapolate(count, static_cast<uint64_t>(ends_.end() - First(now)), now);
}

absl::Duration DrainRate::TimeForTokens(uint64_t count, absl::Time now) const {
  const auto first = First(now);
  return Extrapolate(count, first == ends_.end() ? 0 : tokens_ - first->tokens_before, now);
}

}  // namespace octavo
