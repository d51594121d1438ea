#pragma once

// The production engine with a simulated worker behind a bad network, in one thread, replayable
// from one seed. The seed draws the setting (pool, block size, budgets, steps in flight), the
// requests and every fault: cancels, deadlines, slow readers, duplicate, late, lost and reordered
// plans and results, corrupted tables, lost replicas, requests that kill their worker.
//
// What is checked: the engine's invariants after every call; every request ends exactly once;
// nothing follows an ending; every stream is what its request alone would have produced (a prefix
// of it where the request was ended early); a beam search gives what a plain one gives; at the end
// every block is back. Somebody who listens to KV events now and then knows the prefix index after
// every call.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/core/engine.h"
#include "tests/sim/simulated_worker.h"
#include "tests/unit/scheduler/core/kv_outsider.h"

namespace octavo {

struct SimulationReport {
  absl::Status status;  // the first violation
  std::string setting;
  EngineCounters counters;
  uint32_t requests = 0;
  uint32_t whole_streams = 0;  // ended by their own stop rule
  uint64_t copies = 0;         // of parts of blocks, in plans
  uint64_t shared_in_step =
      0;                       // blocks that a row reads and one before it, in the same plan, fills
  uint64_t failures = 0;       // sequences whose logits were not finite
  uint64_t born_samples = 0;   // beside the first ones
  uint64_t tail_copies = 0;    // of the copies: writes into a shared block
  uint64_t outside_hits = 0;   // lookups that found something, by who knows KV events alone
  uint64_t beam_searches = 0;  // that ended by themselves
  uint64_t given_up = 0;       // requests that kill their worker
};

struct SimulationOptions {
  uint64_t seed = 1;
  bool faults =
      true;  // false: no network faults, no commands, no losses; every stream must be whole
  bool corrupt_tables = true;  // among the faults
  // Told of every replica that starts, and of every plan that reaches it with the simulated
  // worker's verdict; an error is a violation.
  std::function<void(const ReplicaReady&, const EngineOptions&)> on_replica;
  std::function<absl::Status(const StepPlan&, const absl::Status& verdict)> on_plan;
  // A fault of the engine: changes a plan that the worker is about to get, and its digest with its
  // tables. The engine gets the digest back that it knows.
  std::function<void(StepPlan&)> spoil_plan;
};

class Simulation {
 public:
  explicit Simulation(SimulationOptions options);

  SimulationReport Run(uint32_t turns);

 private:
  // What a row of a step in flight works on.
  struct Use {
    StepNumber step;
    SequenceId sequence;
    std::vector<std::pair<BlockId, uint32_t>> blocks;  // and how many slots of each it reads
    size_t row = 0;
  };
  // A sample, or a hypothesis of a beam search.
  struct Sample {
    std::vector<TokenId> output;
    bool complete = false;
    std::optional<FinishReason> reason;
    float score = 0;
  };
  struct Stream {
    SubmitRequest request;
    std::vector<Sample> samples;
    uint32_t next_score = 1;
    bool admitted = false;
    bool ended = false;
    bool paused = false;
    uint32_t beam_length = 0;  // as BeamsAdvanced told
    std::optional<FinishReason> reason;
  };

  uint64_t Draw(uint64_t bound) { return random_() % bound; }
  bool Chance(uint32_t per_mille) { return Draw(1000) < per_mille; }

  // simulation_draws.cc
  EngineOptions DrawOptions();
  SubmitRequest DrawRequest();

  void Turn();
  void Fault();
  void DeliverPlan();
  void DeliverResult();
  void StartReplica();
  void Send(Event event);
  void Plan();
  // After every call of the engine.
  void Absorb();
  void Fail(const std::string& what);
  Stream* DrawLive();

  // simulation_losses.cc
  void LoseReplica(const std::string& why);
  void NoteOwners(const StepPlan& plan);
  void NoteLoss();
  // Whether the worker dies of the plan.
  bool Kills(const StepPlan& plan) const;
  static bool IsGivenUp(absl::Status status);
  void CheckGivenUp(RequestId request_id);

  // simulation_checks.cc
  // Whoever listens to KV events has the index that the engine has.
  void CheckOutsider();
  // No slot that a step in flight reads is written for another sequence; a block that a step writes
  // is in no other table; a copy goes to a block of a row of the plan, and its source is in use by
  // the step. A row may read what a row before it in the plan writes, if that fills the block.
  void CheckBlocks(const StepPlan& plan);
  void Take(SendPlan action);
  void Take(const RequestAdmitted& action);
  void Take(const TokensGenerated& action);
  void Take(const BeamsAdvanced& action);
  void Take(const SequenceFinished& action);
  void Take(const RequestFinished& action);
  void Take(const RequestRefused& action);
  void Take(const PrefixCacheReset&) {}
  void Take(const ReplicaRejected& action);
  void CheckWhole(const Stream& stream, const SequenceFinished& action);
  void CheckSearch(const Stream& stream);
  bool IsPlainSearch(const Stream& stream, uint32_t stopped_after) const;

  const SimulationOptions settings_;
  const bool faults_;
  std::mt19937_64 random_;
  uint32_t vocabulary_;
  KvLayout layout_;
  uint32_t block_count_;
  EngineOptions options_;
  Engine engine_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Action> actions_;
  absl::Status status_;

  std::optional<SimulatedWorker> worker_;
  uint64_t epoch_ = 0;
  std::deque<StepPlan> to_worker_;
  std::deque<Event> to_engine_;
  std::map<StepNumber, StepPlan> unanswered_;          // what the runtime would send again
  std::map<SequenceId, std::vector<BlockId>> tables_;  // after the last plan
  std::vector<Use> uses_;

  std::mt19937_64 outsider_random_;     // its own, so that nothing else depends on it
  std::optional<KvOutsider> outsider_;  // comes and goes
  uint64_t outside_hits_ = 0;

  std::map<RequestId, Stream> streams_;
  uint32_t whole_streams_ = 0;
  uint64_t copies_ = 0;
  uint64_t shared_in_step_ = 0;
  std::set<SequenceId> failures_;
  uint64_t born_samples_ = 0;
  uint64_t tail_copies_ = 0;
  uint64_t beam_searches_ = 0;

  // Positions whose computation, for the first sequence of the request, kills the worker.
  std::map<RequestId, uint32_t> poisons_;
  std::map<SequenceId, std::pair<RequestId, uint32_t>> owners_;  // and the index in the request
  std::map<RequestId, uint32_t> alone_losses_;  // losses while nothing else was in flight
  uint64_t given_up_ = 0;
};

}  // namespace octavo
