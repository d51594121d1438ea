#pragma once

// A worker that answers a step at once: what a row samples is the number of its sequence, so no two
// sequences generate a token in common. It gives no alternatives.

#include "common/step_plan.h"
#include "common/step_result.h"

namespace octavo {

inline StepResult AnswerAtOnce(const StepPlan& plan) {
  StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
  result.digests = {plan.layer_groups[0].digest};
  for (const PlanRow& row : plan.rows) {
    if (!row.samples) continue;
    result.sampled.push_back({.sequence_id = row.sequence_id,
                              .position = row.first_position + row.token_count,
                              .token_id = static_cast<TokenId>(row.sequence_id.value())});
  }
  return result;
}

}  // namespace octavo
