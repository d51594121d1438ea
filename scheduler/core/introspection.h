#pragma once

// What AdminService shows of the engine, as plain values: copies, so that nothing outlives the
// loop's turn.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/step_plan.h"
#include "common/step_result.h"
#include "scheduler/core/actions.h"

namespace octavo {

enum class SequenceState : uint8_t {
  kWaiting,        // in the queue
  kRunning,        // holds blocks, gets steps
  kPausedWaiting,  // out of the queue until resumed
  kPausedRunning,  // holds blocks, gets no steps until resumed
  kEnded,
};
const char* SequenceStateName(SequenceState state);  // "waiting", …

// Totals since the start of the process; they never fall.
struct EngineCounters {
  uint64_t requests_submitted = 0;
  uint64_t requests_refused = 0;
  uint64_t requests_admitted = 0;
  uint64_t requests_finished[9] = {};  // by FinishReason
  uint64_t prompt_tokens = 0;          // of admitted requests
  uint64_t generated_tokens = 0;
  uint64_t computed_tokens = 0;        // token rows of completed steps, recomputation included
  uint64_t prefix_queried_tokens = 0;  // tokens of first admissions that asked the index
  uint64_t prefix_hit_tokens = 0;
  uint64_t prefix_in_flight_hit_tokens = 0;  // of whole blocks that a step in flight was to fill
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens =
      0;  // computed tokens given up by preemptions and not found in the index on resuming
  uint64_t evicted_blocks = 0;
  uint64_t steps_planned = 0;
  uint64_t steps_completed = 0;
  uint64_t duplicate_results = 0;  // of a step that is already done, or already here
  uint64_t stale_results = 0;      // of an older epoch, or of a step that was rolled back
  uint64_t unknown_results = 0;    // of a step that was never sent
  uint64_t reordered_results = 0;  // came before the step before them, and waited
  uint64_t resyncs = 0;
  uint64_t replica_losses = 0;
  uint64_t ignored_commands = 0;  // cancel, pause or resume of a request that is not there
};

// What the token slots of the pool are good for, as the PagedAttention paper tells them apart. The
// rest of the held slots hold tokens (or are shared, cached or returning).
struct SlotWaste {
  uint64_t reserved = 0;  // given to a sequence, which will fill them up to its max_tokens
  uint64_t internal = 0;  // given to a sequence, which never will
  uint64_t external = 0;  // free, but no run is long enough for who waits; 0 where paged

  friend bool operator==(const SlotWaste&, const SlotWaste&) = default;
};

struct SchedulerState {
  ReplicaId replica_id;
  bool replica_ready = false;
  bool draining = false;
  Epoch epoch;
  StepNumber last_planned_step;
  StepNumber last_completed_step;
  uint32_t steps_in_flight = 0;
  uint32_t block_size = 0;  // tokens
  uint32_t capacity_blocks = 0;
  uint32_t free_blocks = 0;
  uint32_t cached_blocks = 0;
  uint32_t held_blocks = 0;
  uint32_t shared_blocks = 0;     // of the held: in more than one table
  uint32_t returning_blocks = 0;  // of the held: given back, but a step in flight still uses them
  SlotWaste waste;
  uint32_t promised_blocks = 0;    // not yet taken by prompts that were admitted
  uint32_t running_sequences = 0;  // paused ones included
  uint32_t waiting_requests = 0;   // paused ones included
  uint64_t waiting_tokens = 0;
  double recent_prefix_hit_ratio = 0;  // of the 1,000 requests admitted last
  uint32_t paused_sequences = 0;
  uint64_t table_digest = 0;
  EngineCounters counters;
};

// One sequence of a request.
struct SequenceRecord {
  uint32_t sequence_index = 0;
  SequenceId sequence_id;
  SequenceState state = SequenceState::kWaiting;
  std::optional<FinishReason> finish_reason;  // kEnded only
  uint32_t output_token_count = 0;
  uint32_t computed_token_count = 0;  // KV written, as far as results confirm it
  uint32_t planned_token_count = 0;   // and what steps in flight will have written
  uint32_t block_count = 0;           // in its table; when it ended, those it held last
  uint64_t seed = 0;
};

// A request, live or among the last that ended. Counts are those of all its sequences together.
struct RequestRecord {
  RequestId request_id;
  std::string client_request_id;
  SequenceId sequence_id;  // the first's
  ReplicaId replica_id;
  SequenceState state = SequenceState::kWaiting;  // of several: that of the one nearest to running
  std::optional<FinishReason> finish_reason;      // kEnded only
  int32_t priority = 0;
  uint32_t prompt_token_count = 0;
  uint32_t output_token_count = 0;
  uint32_t max_output_token_count = 0;  // of each sequence
  uint32_t computed_token_count = 0;
  uint32_t planned_token_count = 0;
  uint32_t cached_token_count = 0;  // found in the prefix index at the first admission
  uint32_t block_count = 0;         // table entries: a shared block counts in each table
  uint32_t preemption_count = 0;
  uint64_t seed = 0;
  absl::Time submitted;
  std::optional<absl::Time> admitted;
  std::optional<absl::Time> first_token;
  std::optional<absl::Time> finished;
  absl::Time deadline = absl::InfiniteFuture();
  uint32_t sample_count = 1;
  // In the order of their indexes; samples that are not born yet are not here.
  std::vector<SequenceRecord> sequences;
};

struct BlockTableEntry {
  BlockId block;
  uint32_t filled_token_count = 0;  // 0 to block_size, as far as results confirm it
  uint32_t reference_count = 0;
  bool indexed = false;     // in the prefix index
  std::string prefix_hash;  // 32 hex digits; empty unless indexed
};

struct BlockTableRecord {
  RequestId request_id;
  uint32_t sequence_index = 0;
  SequenceId sequence_id;
  ReplicaId replica_id;
  LayerGroup layer_group;
  uint32_t block_size = 0;
  uint32_t token_count = 0;
  std::vector<BlockTableEntry> entries;
};

enum class BlockState : uint8_t { kFree, kCached, kHeld };
const char* BlockStateName(BlockState state);  // "free", "cached", "held"

struct BlockRecord {
  BlockId block;
  BlockState state = BlockState::kFree;
  uint32_t reference_count = 0;
  bool indexed = false;
  std::string prefix_hash;  // 32 hex digits; empty unless indexed
  std::optional<BlockId>
      parent;  // an indexed block of the prefix before it; absent at the start of a sequence
  uint32_t token_count = 0;           // known in the index: up to block_size if indexed, else 0
  std::vector<TokenId> first_tokens;  // at most 16 of them
  StepNumber valid_from;  // the step whose completion made its content valid; 0 unless indexed
};

// Neighbouring blocks of the pool, counted: free + cached + held are all of them.
struct PoolCell {
  uint32_t free_count = 0;
  uint32_t cached_count = 0;
  uint32_t held_count = 0;
  uint32_t shared_count = 0;       // of the held: with more than one holder
  std::optional<RequestId> owner;  // who holds most of the others

  friend bool operator==(const PoolCell&, const PoolCell&) = default;
};

// The pool by block id, seen from so far that it has so many cells.
struct PoolMap {
  uint32_t blocks_per_cell = 0;  // of the last cell perhaps fewer
  std::vector<PoolCell> cells;

  friend bool operator==(const PoolMap&, const PoolMap&) = default;
};

struct PrefixLookup {
  uint32_t hit_token_count = 0;  // of the tokens asked about; at most all but the last
  std::vector<BlockId> blocks;   // in order; of the last one perhaps a part, which would be copied
};

// One planned step. `result` is absent while it is in flight and if it was rolled back.
struct StepRecord {
  StepPlan plan;
  absl::Time planned;
  std::optional<StepResult> result;
  absl::Time completed = absl::InfiniteFuture();
  bool rolled_back = false;
};

}  // namespace octavo
