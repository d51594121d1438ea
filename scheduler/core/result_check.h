#pragma once

// Is a result an answer to the step it names? Looked at whole before any of it is applied, so that
// a worker's nonsense never half changes the engine.

#include "absl/status/status.h"
#include "common/step_result.h"
#include "scheduler/core/replica.h"

namespace octavo {

// OK, or InvalidArgument naming what is wrong. Demanded of a result: the digests, if it has any,
// are the plan's; `sampled` has one outcome for each sampling row that has not failed, in the order
// of the rows, at the position behind the row; `scored` has the outcomes of the scoring rows in the
// order of the rows, positions rising by one from the row's second on; each outcome has as many
// alternatives as were asked for, or the whole vocabulary, and `top` is as long as they say. Every
// token id is below `vocab_size`.
absl::Status CheckResult(const StepInFlight& flight, const StepResult& result, uint32_t vocab_size);

// Rows of this sequence produced nothing.
bool HasFailed(const StepResult& result, SequenceId sequence);

}  // namespace octavo
