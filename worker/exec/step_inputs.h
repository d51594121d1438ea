#pragma once

// From a plan and the tables it was applied to, to what the device gets: flat arrays of tokens,
// positions, tables and wanted logits. And back: from the outcomes of the wanted logits to a
// StepResult. Pure functions over their arguments.

#include <vector>

#include "common/ids.h"
#include "common/step_plan.h"
#include "common/step_result.h"
#include "worker/device/step.h"
#include "worker/exec/sequence_tables.h"

namespace octavo {

// What is needed to name a step's outcomes when it has run, since the tables may have moved on.
struct StepLabel {
  ReplicaId replica_id;
  Epoch epoch;
  StepNumber step;
  std::vector<uint64_t> digests;             // [layer_group_count]
  std::vector<SequenceId> logits_sequences;  // [inputs.logits_rows.size()]
};

// Fills `inputs`, replacing what it held. Logits rows come row after row of the plan: scored
// positions in order, then the sampled one. A row that shares logits is a logits row and no more.
// REQUIRES: tables.Apply(plan) was the last change.
void FillStepInputs(const StepPlan& plan, const SequenceTables& tables, StepInputs& inputs,
                    StepLabel& label);

// `inputs` and `outputs` of the step that was awaited. A sequence with a row of logits that was not
// finite is in `failed` and has no outcome.
StepResult MakeStepResult(const StepLabel& label, const StepInputs& inputs,
                          const StepOutputs& outputs);

}  // namespace octavo
