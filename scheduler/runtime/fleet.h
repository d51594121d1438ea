#pragma once

// The workers the scheduler knows, and the one connection ("link") that makes up its replica. In:
// registrations and what a link reports. Out: calls on the link's WorkerClient, and events for the
// engine (ReplicaReady, StepCompleted, StepRefused, ReplicaLost).
//
// The life of a link: registered → dial, LoadModel → StartReplica in a new epoch → Execute stream,
// ready → lost. A worker that is lost is tried again when it registers again; a further worker is a
// spare and takes its place. A stream that the worker ends with FAILED_PRECONDITION is opened again
// on the same link, and the engine resynchronises.
//
// Thread-compatible: owned by the loop.
// Invariants: (1) at most one link. (2) Each link has its own epoch, above all earlier ones, also
// those of earlier processes of this scheduler (epochs begin at the clock). (3) ReplicaReady and
// ReplicaLost alternate.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/kv_layout.h"
#include "common/step_plan.h"
#include "scheduler/core/events.h"
#include "scheduler/runtime/pool_size.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

constexpr size_t kMaxWorkers = 256;
struct FleetOptions {
  uint64_t model_fingerprint = 0;
  KvLayout layout;       // block size and shape; kv_type is settled with the worker
  std::string kv_dtype;  // empty: the worker's default
  PoolSize pool_size;
  uint32_t max_pool_blocks = kMaxPoolBlocks;  // a worker that offers more serves this many
  uint32_t context_length = 0;                // tokens of the longest request
  bool context_length_asked = false;          // so that a pool which holds no such one is refused
  uint32_t max_step_tokens = 0;
  uint32_t max_sequences = 0;
  // A plan unanswered for this long, times 1 + tokens / kStepDeadlineTokens, means a hung worker.
  absl::Duration step_deadline = absl::Seconds(5);
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(10);
};
constexpr uint32_t kStepDeadlineTokens = 256;

enum class WorkerState : uint8_t { kRegistered, kLoading, kReady, kLost };
const char* WorkerStateName(WorkerState state);  // "registered", …

struct KnownWorker {
  WorkerDescription description;
  WorkerState state = WorkerState::kRegistered;
  std::string detail;  // why it is lost or waits, for people
  absl::Time last_seen;
  absl::Time retry_at = absl::InfinitePast();
  uint32_t failures = 0;  // in a row
};

class Fleet {
 public:
  // `dialer` and `events` are borrowed.
  Fleet(FleetOptions options, WorkerDialer* dialer, WorkerEvents* events);

  // A worker announces itself, or that it still lives. InvalidArgument or FailedPrecondition when
  // it cannot serve here, naming value and limit; Unavailable for a new one while draining.
  absl::StatusOr<WorkerState> Register(const WorkerDescription& worker, bool draining,
                                       absl::Time now, std::vector<Event>& events);

  // Reports of a link; those of another than the present one are dropped.
  void OnModelLoaded(LinkId link, const absl::StatusOr<LoadedModel>& loaded, absl::Time now,
                     std::vector<Event>& events);
  void OnReplicaStarted(LinkId link, const absl::Status& status, absl::Time now,
                        std::vector<Event>& events);
  // Returns what the step did if it was the oldest in flight.
  std::optional<StepSample> OnResult(LinkId link, StepResult result, absl::Time now,
                                     std::vector<Event>& events);
  void OnStreamEnded(LinkId link, const absl::Status& status, absl::Time now,
                     std::vector<Event>& events);

  void SendPlan(const StepPlan& plan, absl::Time now);
  // The engine gave the replica up (ReplicaRejected): drops the link without telling the engine
  // again.
  void DropReplica(Epoch epoch, const absl::Status& status, absl::Time now);

  // Declares a worker lost whose oldest plan is overdue.
  void CheckDeadline(absl::Time now, std::vector<Event>& events);
  absl::Time NextDeadline() const;

  bool ready() const { return link_ != nullptr && link_->running; }
  const std::map<std::string, KnownWorker>& workers() const { return workers_; }
  // Of the present link: absent before the model is loaded.
  std::optional<MemoryPlan> memory_plan() const;
  // Instance that makes up the replica, if any.
  std::string replica_instance() const {
    return link_ == nullptr ? std::string() : link_->instance_id;
  }
  std::string kv_dtype() const;
  uint32_t block_count() const { return link_ == nullptr ? 0 : link_->pool.block_count; }
  // Of the present link: absent before its pool was sized.
  std::optional<PoolPlan> pool_plan() const;
  // Why the replica is not ready, for people.
  std::string detail() const;
  const FleetOptions& options() const { return options_; }

 private:
  struct PlanInFlight {
    StepNumber step;
    uint32_t row_count = 0;
    uint32_t token_count = 0;
    absl::Time sent;
  };
  struct Link {
    LinkId id;
    std::string instance_id;
    std::unique_ptr<WorkerClient> client;
    bool running = false;  // the engine counts on it
    Epoch epoch;
    std::optional<LoadedModel> loaded;
    KvLayout layout;
    PoolPlan pool;
    std::deque<PlanInFlight> in_flight;
    absl::Time last_progress;  // last result
  };

  bool IsCurrent(LinkId link) const { return link_ != nullptr && link_->id == link; }
  absl::Status CheckDescription(const WorkerDescription& worker) const;
  void AdoptIfNeeded(absl::Time now);
  void Lose(const absl::Status& status, absl::Time now, std::vector<Event>* events);
  void Forget(absl::Time now);

  const FleetOptions options_;
  WorkerDialer* const dialer_;
  WorkerEvents* const worker_events_;
  std::map<std::string, KnownWorker> workers_;  // by instance id
  std::unique_ptr<Link> link_;
  uint64_t last_link_ = 0;
  uint64_t last_epoch_ = 0;
};

}  // namespace octavo
