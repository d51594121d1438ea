#pragma once

// Prefixes that are shared while they are computed: whose blocks a plan may share although no
// result confirms them yet, and who must be planned again when that step fails.
//
// Idea. A block whose tokens are known when its row is planned enters the prefix index then, with
// the step that fills it as its `valid_from`. A worker applies plans in order, so whoever is
// planned later may share it, or copy from it, at once. Within one plan the rows of a layer write
// their keys and values before any of them reads (common/step_plan.h), so a request may also begin
// with the blocks that a row before its own fills in the same step; it cannot copy from them, as
// copies come first. Who would share what a later step computes waits for it (PrefixProviders).
//
// A row that uses such blocks *relies* on the row that fills them. If that one fails, so has
// everything that relies on it, at any remove; with at most two steps in flight these lists are
// short.
//
// Thread-compatible; pure functions and values.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/ids.h"
#include "scheduler/core/prefix_index.h"
#include "scheduler/core/sequence.h"

namespace octavo {

struct RowInFlight;
struct StepInFlight;

// A block that row `row` of a step in flight fills, and that is indexed already.
struct IndexedAhead {
  BlockId block;
  uint32_t row = 0;
};

// Row `row` of a step uses what the row of sequence `on` in step `step` writes.
struct Reliance {
  uint32_t row = 0;
  SequenceId on;
  StepNumber step;  // its own, or one before it
};

// Notes in `flight` whom its row `row` relies on for sharing or copying `blocks`, which are
// indexed, and returns how many of them steps of `in_flight` are still to fill.
uint32_t NoteReliances(std::span<const BlockId> blocks, const PrefixIndex& index,
                       const std::deque<StepInFlight>& in_flight, uint32_t row,
                       StepInFlight& flight);

// What the failed rows of a step drag along.
struct Consequences {
  std::vector<RowInFlight*> voided;  // rows that are void from now on, in the order of their steps
  std::vector<IndexedAhead> undone;  // blocks that must leave the index, in this order
  std::vector<SequenceId> again;     // sequences that relied on others: to be planned again
};

// `flight` is done and has failed in the rows of these sequences; `later` are the steps in flight
// after it. Makes void every row that relies on a failed one, and every later row of a sequence
// that has one; what they and the failed ones fill is indexed ahead no more.
Consequences VoidReliant(std::span<const SequenceId> failed, StepInFlight& flight,
                         std::deque<StepInFlight>& later);

// The rows of the plan being made that compute tokens others may have too.
class PrefixProviders {
 public:
  struct Offer {
    SequenceSlot slot = 0;  // who has `now_count`
    uint32_t now_count =
        0;               // leading tokens, in whole blocks, that are there when the plan is done
    SequenceId awaited;  // who will have `later_count`
    uint32_t later_count = 0;  // leading tokens, in whole blocks, that are there some steps later
  };

  void Clear() { rows_.clear(); }
  // Its tokens [0, end) are computed when the plan is done, and it goes on. REQUIRES: it may be
  // shared from; `sequence` stays where it is until Clear.
  void Add(SequenceSlot slot, const Sequence& sequence, uint32_t end) {
    rows_.push_back({slot, &sequence, end});
  }
  // The most that the rows offer to `sequence`, all its tokens but the last at most.
  Offer For(const Sequence& sequence, uint32_t block_size) const;
  // Sequence `id` has a row that leaves the first `token_count` tokens unfinished.
  bool IsComputing(SequenceId id, uint32_t token_count) const;

 private:
  struct Row {
    SequenceSlot slot;
    const Sequence* sequence;
    uint32_t end;
  };
  std::vector<Row> rows_;
};

}  // namespace octavo
