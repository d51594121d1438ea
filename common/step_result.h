#pragma once

// What one step produced, as a value. The counterpart of common/step_plan.h.

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace octavo {

struct TokenLogprob {
  TokenId token_id = 0;
  float logprob = 0;

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// One token's choice: sampled (position is new) or scored (position was known).
struct TokenOutcome {
  SequenceId sequence_id;
  uint32_t position = 0;  // absolute position of `token_id`
  TokenId token_id = 0;
  float logprob = 0;       // of the raw logits; 0 unless the sequence asks for logprobs
  uint32_t top_count = 0;  // entries in StepResult::top, most likely first

  friend bool operator==(const TokenOutcome&, const TokenOutcome&) = default;
};

struct StepTimings {
  uint64_t prepare_ns = 0;  // applying the plan and laying out inputs
  uint64_t forward_ns = 0;
  uint64_t sample_ns = 0;

  friend bool operator==(const StepTimings&, const StepTimings&) = default;
};

struct StepResult {
  ReplicaId replica_id;
  Epoch epoch;
  StepNumber step;
  uint32_t rank = 0;
  std::vector<uint64_t> digests;  // [layer_group_count], of the tables the step ran on
  std::vector<TokenOutcome> sampled;
  std::vector<TokenOutcome> scored;
  std::vector<TokenLogprob> top;  // alternatives of `sampled`, then of `scored`, row after row
  // Sequences whose logits were not finite: they produce nothing and end with an error of their
  // own.
  std::vector<SequenceId> failed;
  StepTimings timings;

  friend bool operator==(const StepResult&, const StepResult&) = default;
};

}  // namespace octavo
