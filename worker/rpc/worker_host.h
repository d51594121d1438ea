#pragma once

// A worker's life before and between steps: a model file, then a loaded model, then a replica with
// a pool. In come the scheduler's calls in that order; out come the memory plan and an executor to
// which plans go.
//
// Thread rule: thread-safe. LoadModel and StartReplica may take seconds and exclude each other;
// Submit waits for neither longer than they hold the executor (its replacement). Invariants: (1)
// epochs never fall: StartReplica with one below the highest seen is refused. (2) At most one
// executor exists, and it belongs to the last StartReplica that succeeded.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "worker/device/cpu_backend.h"
#include "worker/exec/executor.h"
#include "worker/model/model.h"

namespace octavo {

struct WorkerOptions {
  std::string model_path;
  uint32_t threads = 0;  // 0: the cores the process may use
  kernels::Isa isa = kernels::DetectIsa();
};

// What the scheduler asks a rank to load.
struct LoadRequest {
  uint64_t model_fingerprint = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t block_size = 16;
  KvType kv_type = KvType::kF16;
  uint32_t max_step_tokens = 0;
  uint32_t max_sequences = 0;

  friend bool operator==(const LoadRequest&, const LoadRequest&) = default;
};

struct LoadedModel {
  MemoryPlan memory_plan;
  KvLayout layout;
};

struct WorkerState {
  std::optional<ReplicaId> replica_id;
  Epoch highest_epoch;
  ExecutorState executor;  // of the replica, if there is one
  std::optional<LoadedModel> model;
  std::string device;
};

class WorkerHost {
 public:
  // Opens and checks the model file, so that a bad one is refused at start. Errors as
  // GgufFile::Open and ReadModelConfig give them.
  static absl::StatusOr<std::unique_ptr<WorkerHost>> Create(WorkerOptions options);

  uint64_t model_fingerprint() const { return model_fingerprint_; }

  // Loads the model, or returns the same answer again for an equal request. A different request
  // ends the replica first. InvalidArgument naming the field for what this device cannot serve.
  absl::StatusOr<LoadedModel> LoadModel(const LoadRequest& request)
      ABSL_LOCKS_EXCLUDED(setup_mutex_, executor_mutex_);

  // Makes the pool and enters `epoch`; whatever was held before is gone. FailedPrecondition before
  // LoadModel or for an epoch below the highest seen, ResourceExhausted with the numbers where the
  // pool does not fit.
  absl::Status StartReplica(ReplicaId replica, Epoch epoch, uint32_t block_count)
      ABSL_LOCKS_EXCLUDED(setup_mutex_, executor_mutex_);

  // Hands a plan to the executor (see Executor::Submit). FailedPrecondition through `done` before
  // StartReplica.
  void Submit(const StepPlan& plan, Executor::Done done) ABSL_LOCKS_EXCLUDED(executor_mutex_);

  WorkerState GetState() const ABSL_LOCKS_EXCLUDED(executor_mutex_);

 private:
  WorkerHost(WorkerOptions options, uint64_t model_fingerprint)
      : options_(std::move(options)), model_fingerprint_(model_fingerprint) {}

  const WorkerOptions options_;
  const uint64_t model_fingerprint_;

  absl::Mutex setup_mutex_ ABSL_ACQUIRED_BEFORE(executor_mutex_);  // one set-up call at a time
  std::optional<LoadRequest> loaded_request_ ABSL_GUARDED_BY(setup_mutex_);
  std::unique_ptr<Backend> backend_ ABSL_GUARDED_BY(setup_mutex_);
  std::unique_ptr<Model> model_ ABSL_GUARDED_BY(setup_mutex_);

  mutable absl::Mutex executor_mutex_;
  std::unique_ptr<Executor> executor_ ABSL_GUARDED_BY(executor_mutex_);
  std::optional<ReplicaId> replica_id_ ABSL_GUARDED_BY(executor_mutex_);
  Epoch highest_epoch_ ABSL_GUARDED_BY(executor_mutex_);
  std::optional<LoadedModel> loaded_ ABSL_GUARDED_BY(executor_mutex_);
  std::string device_ ABSL_GUARDED_BY(executor_mutex_);
};

}  // namespace octavo
