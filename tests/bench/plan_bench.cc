// What a step costs the scheduler: PlanNext and the handling of its result, per running sequence,
// and that waiting requests cost nothing, nor a first one whose long prompt is cached but does not
// fit. `tools/dev bench plan`. Encoding the plan is not in it.

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "scheduler/core/engine.h"
#include "tests/bench/answer_at_once.h"

namespace octavo {
namespace {

// CPU time of this thread, so that other work on the machine counts little.
double Microseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

std::vector<TokenId> Prompt(uint32_t request, uint32_t token_count) {
  std::vector<TokenId> prompt(token_count);
  for (uint32_t i = 0; i < token_count; ++i) {
    prompt[i] = static_cast<TokenId>((request << 20) + i);
  }
  return prompt;
}

// Microseconds a step: `running` sequences decode, `waiting` requests wait behind them. With
// `cached_tokens`, the prompt of the first that runs is so long, and the first that waits begins
// with it, goes on for as long again, and finds too few blocks.
double MicrosecondsPerStep(uint32_t running, uint32_t waiting, uint32_t cached_tokens) {
  EngineOptions options;
  options.context_length = 1 << 20;
  options.max_sequences = running + (cached_tokens > 0);
  options.max_step_tokens = running * 64 + cached_tokens;
  options.max_waiting_requests = 1 << 20;
  options.max_waiting_tokens = 1 << 30;
  Engine engine(options);
  const KvLayout layout{.block_size = 16, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  const absl::Time now = absl::UnixEpoch();
  std::vector<Action> actions;
  const uint32_t cached_blocks = cached_tokens / layout.block_size;
  // Whatever decodes leave is less than the one that waits needs beside its hit.
  const uint32_t block_count = cached_blocks > 0 ? running * 140 + cached_blocks : running * 200;
  engine.Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, block_count}}}, now, actions);
  for (uint32_t i = 0; i < running + waiting; ++i) {
    std::vector<TokenId> prompt = Prompt(i, 64);
    if (cached_tokens > 0 && (i == 0 || i == running)) {
      prompt = Prompt(0, i == 0 ? cached_tokens : cached_tokens + running * 140 * 16);
    }
    engine.Handle(SubmitRequest{.request_id = RequestId(i + 1), .prompt = std::move(prompt)}, now,
                  actions);
  }
  constexpr int kWarmUp = 10;
  constexpr int kSteps = 2000;
  double spent = 0;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    actions.clear();
    const double planned = Microseconds();
    engine.PlanNext(now, actions);
    const double answered = Microseconds();
    const StepPlan& plan = std::get<SendPlan>(actions.back()).plan;
    StepResult result = AnswerAtOnce(plan);
    const double handled = Microseconds();
    engine.Handle(StepCompleted{std::move(result)}, now, actions);
    if (step >= kWarmUp) spent += (answered - planned) + (Microseconds() - handled);
  }
  return spent / kSteps;
}

}  // namespace
}  // namespace octavo

int main() {
  struct Case {
    uint32_t running, waiting, cached_tokens;
  };
  std::printf("%10s %10s %14s %12s %14s\n", "running", "waiting", "head's cached", "us a step",
              "ns a sequence");
  for (const Case& it : {Case{32, 0, 0}, Case{32, 1, 8192}, Case{32, 1, 32768}, Case{32, 1, 131072},
                         Case{256, 0, 0}, Case{256, 1, 32768}, Case{256, 1000, 0},
                         Case{256, 100000, 0}, Case{1024, 0, 0}, Case{4096, 0, 0}}) {
    const double us = octavo::MicrosecondsPerStep(it.running, it.waiting, it.cached_tokens);
    std::printf("%10u %10u %14u %12.1f %14.0f\n", it.running, it.waiting, it.cached_tokens, us,
                us * 1000 / it.running);
  }
}
