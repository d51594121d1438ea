// What a step costs the scheduler: PlanNext and the handling of its result, per running sequence,
// and that waiting requests cost nothing. `tools/dev bench plan`. Encoding the plan is not in it.

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "scheduler/core/engine.h"

namespace octavo {
namespace {

// CPU time of this thread, so that other work on the machine counts little.
double Microseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// Microseconds a step: `running` sequences decode, `waiting` requests wait behind them.
double MicrosecondsPerStep(uint32_t running, uint32_t waiting) {
  EngineOptions options;
  options.context_length = 1 << 20;
  options.max_sequences = running;
  options.max_step_tokens = running * 64;
  options.max_waiting_requests = 1 << 20;
  options.max_waiting_tokens = 1 << 30;
  Engine engine(options);
  const KvLayout layout{.block_size = 16, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  const absl::Time now = absl::UnixEpoch();
  std::vector<Action> actions;
  engine.Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, running * 200}}}, now, actions);
  for (uint32_t i = 0; i < running + waiting; ++i) {
    SubmitRequest request{.request_id = RequestId(i + 1), .prompt = std::vector<TokenId>(64)};
    for (TokenId j = 0; j < 64; ++j) request.prompt[j] = static_cast<TokenId>(i * 64) + j;
    engine.Handle(std::move(request), now, actions);
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
    StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
    result.digests = {plan.layer_groups[0].digest};
    for (const PlanRow& row : plan.rows) {
      if (row.samples) {
        result.sampled.push_back({row.sequence_id, row.first_position + row.token_count, 5, 0, 0});
      }
    }
    const double handled = Microseconds();
    engine.Handle(StepCompleted{std::move(result)}, now, actions);
    if (step >= kWarmUp) spent += (answered - planned) + (Microseconds() - handled);
  }
  return spent / kSteps;
}

}  // namespace
}  // namespace octavo

int main() {
  std::printf("%10s %10s %12s %14s\n", "running", "waiting", "us a step", "ns a sequence");
  for (const auto& [running, waiting] :
       {std::pair{32u, 0u}, {256u, 0u}, {256u, 1000u}, {256u, 100000u}, {1024u, 0u}, {4096u, 0u}}) {
    const double us = octavo::MicrosecondsPerStep(running, waiting);
    std::printf("%10u %10u %12.1f %14.0f\n", running, waiting, us, us * 1000 / running);
  }
}
