#pragma once

// How a beam search scores and ends. The rules are Hugging Face's (transformers, generation with
// num_beams); scheduler/core applies them.

#include <cstdint>

namespace octavo {

constexpr uint32_t kMaxBeamWidth = 32;

// When a search ends, once it has `width` finished hypotheses.
enum class EarlyStopping : uint8_t {
  kHeuristic,  // "false": the best running beam could not beat the worst hypothesis if it ended now
  kAlways,     // "true": at once
  kNever,      // as kHeuristic, but with the best score a running beam could still reach
};

struct BeamSearchParams {
  uint32_t width = 2;          // beams kept in each step, 2 to kMaxBeamWidth
  uint32_t returned = 1;       // hypotheses in the answer, best first; at most `width`
  float length_penalty = 1.0;  // a hypothesis scores (sum of log-probabilities) / length^penalty
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;

  friend bool operator==(const BeamSearchParams&, const BeamSearchParams&) = default;
};

}  // namespace octavo
