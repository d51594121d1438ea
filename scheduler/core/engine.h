#pragma once

// The scheduler's engine: who runs, with which blocks, in which step. Sans-IO and deterministic:
// events and `now` come in, actions go out; it has no clock, thread, lock or connection of its own.
//
// The loop that owns it:   engine.Handle(event, now, actions);  …  while (engine.PlanNext(now,
// actions)) {}  then carry out `actions`.
//
// Thread-compatible: owned by one loop; the const accessors are for that loop too.
// Invariants, proved by CheckInvariants() (design: "Conservation is checked, not hoped"):
//  (1) Every block is free, cached or held, and free + cached + held == capacity.
//  (2) A block's reference count is the number of block tables that name it, plus the releases that
//  wait for a step in flight. (3) No block that a step in flight uses is given to anyone else
//  before that step is done. (4) The blocks promised to admitted prompts are never more than the
//  blocks that can be taken. (5) Every request ends exactly once: RequestFinished or
//  RequestRefused. (6) The digest is that of the tables the worker has after the last plan.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/core/actions.h"
#include "scheduler/core/drain_rate.h"
#include "scheduler/core/events.h"
#include "scheduler/core/hit_ratio_window.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/kv_events.h"
#include "scheduler/core/loss_trials.h"
#include "scheduler/core/options.h"
#include "scheduler/core/planner.h"
#include "scheduler/core/replica.h"
#include "scheduler/core/request_queue.h"
#include "scheduler/core/sequence.h"
#include "scheduler/core/step_trace.h"

namespace octavo {

class Engine {
 public:
  // REQUIRES: options.Validate() is OK.
  explicit Engine(EngineOptions options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes in one event and appends what follows from it to `actions`. `now` never goes back.
  void Handle(Event event, absl::Time now, std::vector<Action>& actions);

  // Plans the next step if a replica is ready, fewer than max_steps_in_flight are in flight, and
  // there is work: appends SendPlan (after the RequestAdmitted of those it admits) and returns
  // true. Otherwise false; requests may still have ended.
  bool PlanNext(absl::Time now, std::vector<Action>& actions);

  // When a Tick is needed at the latest: the earliest deadline, or InfiniteFuture.
  absl::Time NextDeadline() const;
  // No request is live (waiting, running or paused): a drain is complete.
  bool idle() const;
  bool replica_ready() const;

  // --- Looking inside (AdminService). None changes anything. ---
  SchedulerState State() const;
  SlotWaste Waste() const;
  EngineCounters Counters() const;
  // Live requests in the order they would run: running, then waiting, then paused waiting; `first`
  // of them skipped.
  std::vector<RequestRecord> ListRequests(uint32_t first, uint32_t limit) const;
  // Live, or among the last that ended.
  std::optional<RequestRecord> FindRequest(RequestId request_id) const;
  std::optional<RequestRecord> FindRequest(absl::string_view client_request_id) const;
  // Of a live request: its live sequences, in the order of their indexes. Empty entries of those
  // that wait.
  std::vector<BlockTableRecord> BlockTablesOf(RequestId request_id) const;
  // The first of them.
  std::optional<BlockTableRecord> BlockTableOf(RequestId request_id) const;
  // Blocks [first, first + limit) of the pool.
  std::vector<BlockRecord> ListBlocks(uint32_t first, uint32_t limit) const;
  // The pool as at most `max_cells` cells. REQUIRES: max_cells >= 1.
  PoolMap MapPool(uint32_t max_cells) const;
  // The blocks that nobody holds, the one that is reused first in front.
  std::vector<BlockId> ReuseOrder(uint32_t limit) const;
  PrefixLookup LookupPrefix(std::span<const TokenId> tokens, absl::string_view cache_salt) const;
  // The last `limit` steps, oldest first.
  std::vector<StepRecord> StepTrace(uint32_t limit) const;

  // --- KV events (kv_events.h) ---
  // Begins or ends recording.
  void RecordKvEvents(bool on);
  // What was recorded since the last call, oldest first; nothing while nothing is recorded.
  std::vector<KvEvent> TakeKvEvents();
  // What is stored now, as events: a `cleared` for the snapshot, then a `stored` for each block.
  // REQUIRES: recording; what was recorded before has been taken.
  std::vector<KvEvent> KvSnapshot() const;

  // Internal, with what is wrong and where. Costs time proportional to the pool; meant for tests,
  // simulation and AdminService.
  absl::Status CheckInvariants() const;

 private:
  using Actions = std::vector<Action>;

  // How a request ends.
  struct Ending {
    FinishReason reason = FinishReason::kError;
    std::optional<TokenId> stop_token;
    std::optional<uint32_t> kept_token_count;  // absent: all
    absl::Status status;
  };

  // engine_submit.cc: a request comes.
  void On(SubmitRequest event, absl::Time now, Actions& actions);
  absl::Status CheckSubmit(const SubmitRequest& event, absl::Time now) const;
  // ResourceExhausted with what waits, the limit, and when to come back (drain_rate.h).
  absl::Status CheckQueueHasRoom(uint64_t prompt_tokens, absl::Time now) const;
  // FailedPrecondition with the numbers if the pool could never hold all its sequences at once.
  absl::Status CheckFits(uint32_t prompt_token_count, std::optional<uint32_t> max_tokens,
                         uint32_t sequence_count) const;
  absl::Status CheckSampleCount(const SubmitRequest& event) const;

  // engine.cc: what clients and operators ask of what runs.
  void On(const CancelRequest& event, absl::Time now, Actions& actions);
  void On(const StopSequence& event, absl::Time now, Actions& actions);
  void On(const PauseRequest& event, absl::Time now, Actions& actions);
  void On(const ResumeRequest& event, absl::Time now, Actions& actions);
  void On(const DrainStarted& event, absl::Time now, Actions& actions);
  void On(const ResetPrefixCache& event, absl::Time now, Actions& actions);
  void On(const Tick& event, absl::Time now, Actions& actions);
  void ExpireDeadlines(absl::Time now, Actions& actions);
  Request* FindLive(RequestId request_id);
  // The end of a sequence, and of its request if no other one is left. An ending that is not OK is
  // that of the whole request.
  void Finish(SequenceSlot slot, Ending ending, absl::Time now, Actions& actions);
  void EndSequence(SequenceSlot slot, const Ending& ending);
  // The only end of an accepted request. Its sequences that are left end with it.
  void FinishRequest(Request& request, Ending ending, absl::Time now, Actions& actions);
  // Out of the queue or the running, off the worker, without blocks; in no request's list.
  void Withdraw(SequenceSlot slot);
  void Pause(SequenceSlot slot);
  void Resume(SequenceSlot slot);

  // engine_plan.cc: applying what the planner chose.
  void Admit(Admission& admission, absl::Time now, Actions& actions);
  void Preempt(SequenceSlot slot);
  // Back to waiting, with the tokens it has.
  void Requeue(SequenceSlot slot);
  // Takes a running sequence's place and blocks, and tells the worker with the next plan. Its state
  // is the caller's to change.
  void Vacate(SequenceSlot slot);
  StepPlan MakePlan(const PlanChoice& choice);
  void AddRow(const ChosenRow& row, StepPlan& plan, StepInFlight& flight);
  void NoteSharing(const ChosenRow& row, const PrefixHit& hit, uint32_t index,
                   StepInFlight& flight);
  // The part of a block that a hit ends with becomes the table's own.
  void CopyRun(const PrefixHit& hit, const BlockTable& table, StepPlan& plan);
  // What the worker must know before the row that is about to be added: the sequence itself, and
  // the blocks it does not have in its table yet.
  void SendState(Sequence& sequence, StepPlan& plan);
  void AddToRunning(SequenceSlot slot);

  // engine_fork.cc: parallel samples.
  void BearSiblings(SequenceSlot stem, StepPlan& plan, StepInFlight& flight);
  void CopyTail(Sequence& sequence, StepPlan& plan);

  // engine_beams.cc: beam search.
  // Makes a request's only sequence, which is new, the first beam of a search.
  static void BeginBeams(const BeamSearchParams& params, Sequence& sequence);
  // The candidates of one beam are here: it sits out until those of all are.
  void Deliver(SequenceSlot slot, std::span<const TokenLogprob> alternatives);
  // They are: the search chooses who goes on.
  void AdvanceBeams(Request& request, absl::Time now, Actions& actions);
  void ContinueBeams(Request& request, std::span<const BeamContinuation> continuations);
  // A second child of a beam, or a later one. Returns its place.
  SequenceSlot ForkBeam(SequenceSlot parent, uint32_t index);
  // The search is done: with its hypotheses. `limit_reason` is of those that have no stop token.
  void FinishBeams(Request& request, FinishReason limit_reason, absl::Time now, Actions& actions);

  // engine_results.cc: what replicas tell.
  void On(StepCompleted event, absl::Time now, Actions& actions);
  void On(const StepRefused& event, absl::Time now, Actions& actions);
  void On(const ReplicaReady& event, absl::Time now, Actions& actions);
  void On(const ReplicaLost& event, absl::Time now, Actions& actions);
  // The oldest step in flight is done, with this result that CheckResult accepted.
  void Settle(StepResult result, absl::Time now, Actions& actions);
  // The step is done and rows of it have failed: what they and whoever relies on them were to fill
  // leaves the index, and the latter are planned again.
  void UndoFailedRows(const StepResult& result, StepInFlight& flight);
  // Returns the running sequences that relied on a step in flight: their tables have blocks that
  // nobody has filled.
  std::vector<SequenceSlot> RollBackSteps();

  // engine_losses.cc: a replica is lost.
  void Reject(const absl::Status& status, absl::Time now, Actions& actions);
  void LoseReplica(const absl::Status& status, absl::Time now, Actions& actions);
  // Who has rows in flight is to be tried by the next replica. Returns who is guilty already.
  std::optional<LostRow> TryInFlight();
  // Suspects that have computed what they were suspected for are so no more.
  void ClearSuspects();

  // The replica's ledger tells the recorder, if there is one.
  void AttachRecorder();

  // engine_views.cc, engine_invariants.cc
  SequenceRecord MakeSequenceRecord(const Sequence& sequence) const;
  RequestRecord MakeRecord(const Request& request) const;
  BlockTableRecord MakeTableRecord(const Sequence& sequence) const;
  absl::Status CheckSequence(const Request& request, const Sequence& sequence) const;
  absl::Status CheckBeams(const Request& request) const;
  absl::Status CheckReplica() const;

  const EngineOptions options_;
  Planner planner_{&options_};
  PlanChoice choice_;  // the planner's output, kept for its memory

  // By id, so that walks are in the same order in every process.
  absl::btree_map<RequestId, std::unique_ptr<Request>> requests_;
  absl::flat_hash_map<std::string, RequestId> request_of_client_id_;
  absl::btree_set<std::pair<absl::Time, RequestId>> deadlines_;  // the finite ones
  SequenceStore sequences_;
  RequestQueue queue_;
  uint32_t waiting_count_ = 0;   // in the queue or paused outside it
  uint32_t paused_count_ = 0;    // waiting or running
  uint64_t waiting_tokens_ = 0;  // prompt tokens of those that wait
  DrainRate drain_rate_;
  HitRatioWindow recent_hits_{1000};
  uint64_t last_arrival_ = 0;
  SequenceId last_sequence_id_;

  std::optional<Replica> replica_;                // absent until ready; several will be a list
  LossTrials trials_;                             // of those that may have lost the last one
  Epoch last_epoch_;                              // the highest ever seen
  uint64_t evicted_before_ = 0;                   // blocks evicted in earlier epochs
  std::unique_ptr<KvEventRecorder> kv_recorder_;  // null: nobody listens

  bool draining_ = false;
  EngineCounters counters_;
  StepTraceRing trace_;
  std::deque<RequestRecord> ended_;  // the last options_.ended_request_count
};

}  // namespace octavo
