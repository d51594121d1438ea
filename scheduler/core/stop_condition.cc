#include "scheduler/core/stop_condition.h"

#include <algorithm>
#include <utility>

namespace octavo {

std::optional<StopVerdict> StopAfter(const StopRule& rule, uint32_t output_count, TokenId token) {
  if (output_count >= rule.min_tokens &&
      std::binary_search(rule.stop_token_ids.begin(), rule.stop_token_ids.end(), token)) {
    return StopVerdict{FinishReason::kStopToken, token};
  }
  if (output_count >= rule.max_tokens) return StopVerdict{rule.limit_reason, std::nullopt};
  return std::nullopt;
}

StopRule MakeStopRule(std::vector<TokenId> stop_token_ids, uint32_t min_tokens,
                      std::optional<uint32_t> explicit_max, uint32_t prompt_token_count,
                      uint32_t context_length) {
  std::sort(stop_token_ids.begin(), stop_token_ids.end());
  return {.stop_token_ids = std::move(stop_token_ids),
          .min_tokens = min_tokens,
          .max_tokens = explicit_max.value_or(context_length - prompt_token_count),
          .limit_reason =
              explicit_max.has_value() ? FinishReason::kLength : FinishReason::kModelLength};
}

}  // namespace octavo
