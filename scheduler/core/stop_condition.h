#pragma once

// When a sequence is finished by what it generated. Stop strings are matched outside, on text; the
// engine sees tokens.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "scheduler/core/actions.h"

namespace octavo {

// How a sequence may end, fixed when it is submitted.
struct StopRule {
  std::vector<TokenId> stop_token_ids;  // sorted
  uint32_t min_tokens = 0;              // output tokens before which a stop token does not count
  uint32_t max_tokens = 0;              // output tokens it may have, at least 1
  FinishReason limit_reason =
      FinishReason::kLength;  // of reaching max_tokens: kLength or kModelLength
};

struct StopVerdict {
  FinishReason reason;
  std::optional<TokenId> stop_token;

  friend bool operator==(const StopVerdict&, const StopVerdict&) = default;
};

// Does the sequence end with `token`, its `output_count`-th output token (the first is 1)? A stop
// token is told before the limit it may share its place with.
std::optional<StopVerdict> StopAfter(const StopRule& rule, uint32_t output_count, TokenId token);

// The rule of a request with these wishes. `explicit_max` absent: what `context_length` leaves
// after the prompt. REQUIRES: prompt_token_count < context_length; prompt_token_count +
// *explicit_max <= context_length.
StopRule MakeStopRule(std::vector<TokenId> stop_token_ids, uint32_t min_tokens,
                      std::optional<uint32_t> explicit_max, uint32_t prompt_token_count,
                      uint32_t context_length);

}  // namespace octavo
