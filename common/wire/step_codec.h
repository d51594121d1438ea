#pragma once

// Plans, results and sampling parameters between their values (common/) and their messages
// (proto/octavo/v1). Decoding is the border: a message that cannot be a value (column lengths that
// disagree, ids out of range) is InvalidArgument and names the column, so that everything behind it
// works on values that cannot be malformed. What needs the receiver's state (unknown sequences,
// digests) is checked where that state is.
//
// Thread rule: pure functions.

#include "absl/status/statusor.h"
#include "common/sampling_params.h"
#include "common/step_plan.h"
#include "common/step_result.h"
#include "octavo/v1/sampling.pb.h"
#include "octavo/v1/step.pb.h"

namespace octavo::wire {

// Writes every optional field, so that the peer needs no defaults. `message` must be empty.
void EncodeSampling(const SamplingParams& params, v1::SamplingParams& message);

// Absent fields take SamplingParams' defaults. Copies; ranges are the border's to check
// (scheduler/rpc), except that token ids must fit a TokenId. `seed` and `ignore_eos` have no place
// in the value and are the caller's to read.
absl::StatusOr<SamplingParams> DecodeSampling(const v1::SamplingParams& message);

// `message` must be empty; give it an arena to make encoding cheap.
void EncodePlan(const StepPlan& plan, v1::StepPlan& message);
absl::StatusOr<StepPlan> DecodePlan(const v1::StepPlan& message);

void EncodeResult(const StepResult& result, v1::StepResult& message);
absl::StatusOr<StepResult> DecodeResult(const v1::StepResult& message);

}  // namespace octavo::wire
