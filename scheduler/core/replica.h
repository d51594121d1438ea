#pragma once

// One replica as the engine sees it: its pool, who runs on it, and the steps on their way. It lives
// from ReplicaReady to its loss.
//
// Thread-compatible. Plain data; its rules are checked by Engine::CheckInvariants.

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/step_result.h"
#include "scheduler/core/in_flight_sharing.h"
#include "scheduler/core/kv_ledger.h"
#include "scheduler/core/sequence.h"

namespace octavo {

// What a step in flight is expected to answer for one row of its plan.
struct RowInFlight {
  SequenceSlot slot = 0;
  SequenceId sequence_id;  // the slot may have a new tenant when the result comes
  uint32_t first_position = 0;
  uint32_t token_count = 0;  // 0: a sample is born with this row
  bool samples = false;
  uint32_t score_count = 0;  // prompt positions from first_position + 1 on that must be scored
  uint32_t top_count = 0;    // alternatives each of its tokens must come with
  bool is_void =
      false;  // it read what a failed row wrote: whatever the result says of it is ignored
};

struct StepInFlight {
  StepNumber step;
  uint64_t digest = 0;
  std::vector<RowInFlight> rows;      // in the order of the plan
  std::vector<IndexedAhead> indexed;  // by row, then in the order of the tables
  std::vector<Reliance> reliances;    // by row
  std::optional<StepResult> result;   // here, but an earlier step's is not
};

struct Replica {
  Replica(ReplicaId replica_id, Epoch replica_epoch, KvLedger books)
      : id(replica_id), epoch(replica_epoch), ledger(std::move(books)) {}

  ReplicaId id;
  Epoch epoch;
  KvLedger ledger;  // of layer group 0; a second attention type will have a second one

  // Sequences with blocks, paused ones included, by QueueKey: the first is served first, the last
  // preempted first.
  std::vector<SequenceSlot> running;
  uint32_t promised_blocks = 0;  // sum of theirs
  uint32_t unborn_count = 0;     // siblings to be born by them: they have their places already

  StepNumber last_planned;
  StepNumber last_settled;  // every step up to here is done or rolled back
  StepNumber
      rolled_back_from;  // steps [from, through] were rolled back last; none while `through` is 0
  StepNumber rolled_back_through;
  std::deque<StepInFlight> in_flight;  // (last_settled, last_planned], at most max_steps_in_flight

  std::vector<SequenceId> releases;  // for the next plan
  uint64_t digest = 0;               // of the tables the worker has after the last plan
  bool resets_state = false;         // the next plan starts the worker's tables anew
  uint32_t consecutive_resyncs = 0;
};

}  // namespace octavo
