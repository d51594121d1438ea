#pragma once

// The production engine under a recorded workload that keeps its queue full: all requests wait from
// the start, and the worker answers every step at once. Time is counted in steps.
//
//   --first_turns   leave out the requests that go on from the one above them in the trace, whose
//                   prompt holds its prompt and answer

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/step_plan.h"
#include "common/step_result.h"
#include "scheduler/core/engine.h"
#include "tests/bench/answer_at_once.h"
#include "tools/octavo/trace_file.h"

namespace octavo {

constexpr uint32_t kPoolTokens = 131'072;

// The first `count` of --trace that have a prompt and an answer and fit `max_model_len` tokens, at
// least one. InvalidArgument or NotFound otherwise.
absl::StatusOr<std::vector<cli::RequestLength>> ReadRequests(uint32_t max_model_len, size_t count);

struct SaturatedRun {
  EngineOptions options;  // context_length is set; how much may wait, run and be in flight is not
  uint32_t block_size = 16;
  SubmitRequest form;  // of every request; its id, its prompt and its answer's length are its own
  std::function<StepResult(const StepPlan&)> answer = AnswerAtOnce;
};

// Runs all of them to their ends and shows each step that is planned, before its result. No two
// prompts begin with the same token.
void RunSaturated(const SaturatedRun& run, std::span<const cli::RequestLength> requests,
                  const std::function<void(const Engine&, const StepPlan&)>& observe);

}  // namespace octavo
