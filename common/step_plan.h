#pragma once

// What one step of one replica does, as a value: comparable, printable, replayable. Made by the
// engine (scheduler/core), carried by proto/octavo/v1/step.proto, applied exactly once by every
// rank (worker/exec).
//
// Variable-length parts are flat arrays with counts in the rows, so that a plan for thousands of
// sequences costs a handful of allocations and encodes straight into packed columns.

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/sampling_params.h"

namespace octavo {

// What a worker serves at most: sequences it knows at a time, tokens a step computes.
constexpr uint32_t kMaxSequences = 1 << 16;
constexpr uint32_t kMaxStepTokens = 1 << 16;

// A sequence the worker has not seen, or has released since: sent once, before its first row.
struct SequenceStart {
  SequenceId sequence_id;
  uint64_t seed = 0;  // draws depend on (seed, absolute position) alone
  uint32_t prompt_token_count = 0;
  SamplingParams sampling;
  // Every token known so far (prompt, then output), only when sampling.needs_history() or the rows
  // will score inputs; else empty.
  std::vector<TokenId> history;

  friend bool operator==(const SequenceStart&, const SequenceStart&) = default;
};

// Computes tokens [first_position, first_position + token_count) of one sequence.
struct PlanRow {
  SequenceId sequence_id;
  uint32_t first_position = 0;
  uint32_t token_count = 0;  // >= 1; 0 of a row that shares logits
  bool samples = false;      // choose the token at position first_position + token_count
  // The last input token is the one this worker sampled in the step before (it is not in
  // `token_ids`): the step was planned while that one was in flight.
  bool feeds_sampled = false;
  bool scores = false;  // also return log-probabilities of the known tokens that follow each input
                        // (prompt log-probabilities)
  // Computes nothing: samples from the logits of the nearest row above that computes tokens, which
  // samples too and ends at `first_position`. So the samples of one prompt begin.
  bool shares_logits = false;

  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

// First `token_count` slots of `source` are copied to `destination`. All reads of a plan's copies
// precede all its writes.
struct BlockCopy {
  BlockId source;
  BlockId destination;
  uint32_t token_count = 0;

  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

// Entry `index` of a block table now names `block`.
struct TableEntryChange {
  SequenceId sequence_id;
  uint32_t index = 0;
  BlockId block;

  friend bool operator==(const TableEntryChange&, const TableEntryChange&) = default;
};

// The change of one layer group's block tables in this step, and what they must add up to
// afterwards.
struct LayerGroupChange {
  LayerGroup layer_group;
  std::vector<uint32_t> new_block_counts;  // [row_count]: blocks appended to the row's table
  std::vector<BlockId> new_blocks;         // row after row
  std::vector<TableEntryChange> entry_changes;
  std::vector<BlockCopy> copies;
  uint64_t digest =
      0;  // of all tables after starts, releases, appends and entry changes (common/table_digest.h)

  friend bool operator==(const LayerGroupChange&, const LayerGroupChange&) = default;
};

// Order of application: (1) resets_state, (2) releases, (3) starts, (4) table changes and digest
// check, (5) copies, (6) rows. The rows run together, but a row may read slots that a row before it
// writes in this very step: in every layer all rows write their keys and values before any reads.
struct StepPlan {
  ReplicaId replica_id;
  Epoch epoch;
  StepNumber step;
  bool resets_state = false;  // forget every sequence and table first; the pool's bytes stay
  std::vector<SequenceId> releases;
  std::vector<SequenceStart> starts;
  std::vector<PlanRow> rows;
  std::vector<TokenId> token_ids;  // inputs, row after row; token_count - feeds_sampled of each
  std::vector<LayerGroupChange> layer_groups;

  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

}  // namespace octavo
