#pragma once

// Turns step plans into step results on one rank. In comes a StepPlan, checked whole against the
// worker's tables before anything is changed (worker/exec/sequence_tables.h); out comes a
// StepResult, or the reason why the plan was refused. Up to two steps are in flight: while one
// runs, the next is checked and laid out.
//
// Thread rule: Submit and Execute by one thread at a time; `done` runs on the executor's own
// thread, or inside Submit where the answer is known at once. GetState by any thread. Invariants:
// (1) A plan is applied once: a step number that was applied is answered from the stored result
// (the last kStoredResults of sequence_tables.h
//     are kept). (2) A refused plan changes nothing. (3) Results come in the
// order of steps; every `done` is called exactly once, also when the executor is destroyed.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/kv_layout.h"
#include "common/step_plan.h"
#include "common/step_result.h"

namespace octavo {

class Model;  // worker/model/model.h

constexpr uint32_t kStepsInFlight = 2;

struct ExecutorOptions {
  ReplicaId replica_id;
  Epoch epoch;  // entered at once: plans of a lower one are refused
  uint32_t rank = 0;
  uint32_t block_size = 16;
  KvType kv_type = KvType::kF16;
  uint32_t num_blocks = 0;        // 0: the memory plan's default
  uint32_t max_sequences = 1024;  // known at a time
};

// Where an executor stands, for people and tests.
struct ExecutorState {
  Epoch epoch;
  StepNumber step;  // last applied, 0 before the first
  uint32_t sequence_count = 0;
  std::vector<uint64_t> digests;  // [layer_group_count]

  friend bool operator==(const ExecutorState&, const ExecutorState&) = default;
};

class Executor {
 public:
  // FailedPrecondition: resynchronise (epoch, step number or digest do not fit). InvalidArgument:
  // the plan contradicts itself, the tables or the model. ResourceExhausted: kStepsInFlight plans
  // are in flight already. Internal: the device failed.
  using Done = std::function<void(absl::StatusOr<StepResult>)>;

  // Makes the pool and the steps. `model` and its backend are borrowed, one executor at a time.
  // ResourceExhausted with the numbers where the pool does not fit; InvalidArgument for an option
  // out of range.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Model& model,
                                                          const ExecutorOptions& options);
  // Waits for the steps in flight and gives the pool back.
  virtual ~Executor() = default;

  virtual const KvLayout& layout() const = 0;
  virtual uint32_t num_blocks() const = 0;
  virtual uint32_t max_sequences() const = 0;
  virtual uint32_t max_tokens_per_step() const = 0;
  virtual ExecutorState GetState() const = 0;

  virtual void Submit(const StepPlan& plan, Done done) = 0;

  // Submit and wait for the answer.
  absl::StatusOr<StepResult> Execute(const StepPlan& plan);
};

}  // namespace octavo
