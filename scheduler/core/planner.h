#pragma once

// Decides what the next step does: which rows, for whom blocks are taken, who is preempted, who is
// admitted. It only decides: all its reservations are numbers in its own scratch, and nothing else
// changes until the engine applies the whole choice or none of it.
//
// Rules (design: "The scheduler's rules").
//  1. Running sequences first, in QueueKey order, then waiting ones in QueueKey order; nobody is
//  passed but who waits for a prefix (5). All share
//     max_step_tokens; a prefill chunk leaves room for one token of every decode after it, and is
//     at most long_prefill_token_limit.
//  A row that would write into a block of several tables gets a block more, for a copy; so of those
//  who write it in this step all but the last, who is alone with it then.
//  2. Admission: a place for each of its sequences; blocks for all tokens known must be available
//  beside what is promised to others, and watermark_blocks more unless
//     nothing runs. What is not taken in this step is promised. Nobody is admitted in a step in
//     which somebody lacks blocks. A hit's run is given up where its block is one too many.
//  3. A running sequence takes promised blocks first. If it needs one more and none is left,
//  somebody is preempted: paused sequences
//     first, then the last in QueueKey order behind it; never one that frees nothing, but a fork,
//     since of those that share blocks only the last one frees them. Blocks that a
//     step in flight still uses come back after it: then the needy one sits this step out instead
//     of costing another victim.
//  4. Under a contiguous KvPolicy an admission takes its whole run at once, and nobody ever lacks a
//  block.
//  5. In-flight sharing: a request begins with what a row before its own computes in the same step,
//  and with what steps in flight
//     do (in_flight_sharing.h). One that would share what somebody computes in later steps waits
//     for it, as long as that one has a row in every step, in at most max_prefix_wait_steps of
//     them; it is passed meanwhile. A plan passes at most max_sequences of them.
//  6. While there are suspects (loss_trials.h), only the group on trial has rows; the others keep
//  their places in the order, and their blocks until somebody needs them, as the paused do.
//  7. If nobody is behind it, it gives way itself, as long as another one runs; alone, it is
//  exhausted: it ends.
//
// Thread-compatible.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "scheduler/core/in_flight_sharing.h"
#include "scheduler/core/kv_ledger.h"
#include "scheduler/core/loss_trials.h"
#include "scheduler/core/options.h"
#include "scheduler/core/replica.h"
#include "scheduler/core/request_queue.h"
#include "scheduler/core/sequence.h"

namespace octavo {

struct ChosenRow {
  SequenceSlot slot = 0;
  uint32_t first_position = 0;
  uint32_t token_count = 0;
  uint32_t new_block_count = 0;  // beside those of a prefix hit
  bool copies_tail = false;      // into one block more: the first that it writes is shared
  // It begins with so many blocks of the table of `shared_from`, whose row is before this one.
  uint32_t shared_block_count = 0;
  SequenceSlot shared_from = 0;
};

struct Admission {
  SequenceSlot slot = 0;
  PrefixHit hit;
  uint32_t cached_token_count = 0;  // of the hit, or of what it shares with a row before its own
  uint32_t target_blocks = 0;
  uint32_t reserved_blocks = 0;  // a contiguous run for all it may need; 0: as it grows
};

// To be applied in this order.
struct PlanChoice {
  std::vector<SequenceSlot> exhausted;  // not empty: end these and choose again; the rest is void
  std::vector<SequenceSlot> preempted;  // in the order they were chosen
  std::vector<Admission> admitted;
  std::vector<ChosenRow> rows;  // running sequences, then the admitted
  // These wait one step more for a prefix that one of the rows goes on computing.
  std::vector<std::pair<SequenceSlot, PrefixWait>> prefix_waits;

  void Clear();
};

class Planner {
 public:
  // `options` is borrowed.
  explicit Planner(const EngineOptions* options) : options_(options) {}

  void Choose(const Replica& replica, const SequenceStore& sequences, const RequestQueue& queue,
              const LossTrials& trials, PlanChoice& choice);

  // What is remembered of a lookup gives the same hit as a lookup without it.
  absl::Status CheckInvariants(const Replica& replica, const SequenceStore& sequences) const;

 private:
  void ChooseRunning(const SequenceStore& sequences, PlanChoice& choice);
  void ChooseWaiting(const SequenceStore& sequences, const RequestQueue& queue, PlanChoice& choice);
  // What a waiting sequence would begin with: a prefix hit, or blocks that a row of this choice
  // fills.
  struct Beginning {
    uint32_t target_blocks = 0;
    PrefixHit hit;
    PrefixProviders::Offer offer;
    uint32_t shared_blocks = 0;  // of the table of offer.slot, instead of a hit

    uint32_t needed_blocks() const {
      return target_blocks - shared_blocks - hit.block_count() + hit.idle_block_count;
    }
  };
  // Admits a waiting sequence if it can. False: those behind it must wait as well.
  bool Consider(const SequenceStore& sequences, SequenceSlot slot, PlanChoice& choice);
  bool Admit(SequenceSlot slot, const Sequence& sequence, Beginning beginning, PlanChoice& choice);
  // Makes room for `growth` unpromised blocks for running sequence `index`, and the one it copies
  // its tail to if it must. False: it gets no row in this step.
  bool MakeRoom(const SequenceStore& sequences, size_t index, uint32_t growth, PlanChoice& choice);
  // The next position it writes lies in a block that other tables name too.
  bool MustCopy(const Sequence& sequence) const;
  // What the sequence's leaving would bring back.
  struct Freed {
    uint32_t now = 0;
    uint32_t later = 0;  // when the steps in flight are done
    uint32_t count() const { return now + later; }
  };
  Freed FreedBy(const Sequence& sequence) const;
  // A table leaves the block with this choice.
  void Drop(BlockId block, bool in_flight);
  // Preempts one victim among those that sit out, and, unless `idle_only`, those behind `index`.
  // False: there is none.
  bool PreemptOne(const SequenceStore& sequences, size_t index, bool idle_only, PlanChoice& choice);
  bool SitsOut(const Sequence& sequence) const {
    return sequence.is_paused() || !trials_->Admits(sequence.request->id);
  }
  void PreemptAt(const SequenceStore& sequences, size_t index, PlanChoice& choice);
  // What a sequence must be given at its admission, beside a hit: blocks for all tokens known, or a
  // run for all it may become.
  uint32_t TargetOf(const Sequence& sequence) const;
  // Whether the batch that runs takes nobody in any more (KvPolicy::kStatic): it was full once, or
  // one of it has ended.
  bool IsBatchClosed();
  // It gets a row of this step if there is room. (Prefill and decode alike.)
  bool WantsRow(const Sequence& sequence) const;
  uint32_t ChunkOf(uint32_t wanted, uint32_t budget) const;
  PrefixHit LookUp(SequenceSlot slot, const Sequence& sequence);
  // A row of the choice computes tokens that others may share, up to `end`, and more in later steps
  // or, if it is its last one, none.
  void Provide(SequenceSlot slot, const Sequence& sequence, uint32_t end);
  bool UsesPrefixes(const Sequence& sequence) const {
    return options_->prefix_cache && !sequence.request->no_cache && !sequence.scores_due();
  }
  // Whether it waits one step more for the prefix it waited for before; it is noted in `choice`.
  bool KeepsWaiting(SequenceSlot slot, const Sequence& sequence, PlanChoice& choice) const;
  // Whether a waiting sequence, with this hit, waits one step more for a prefix; it is noted in
  // `choice`. `offer`: what it may share with the rows of the choice.
  bool WaitsForPrefix(SequenceSlot slot, const Sequence& sequence, const PrefixHit& hit,
                      const PrefixProviders::Offer& offer, PlanChoice& choice) const;

  const EngineOptions* options_;

  // The hit of the waiting sequence that was short of blocks last: it is looked up in every plan
  // until it runs.
  struct Remembered {
    Epoch epoch;  // of the replica whose ledger it is from
    SequenceSlot slot = 0;
    SequenceId sequence_id;
    PrefixHit hit;
  };
  Remembered remembered_;
  uint32_t batch_size_ = 0;  // of kStatic: the most that ran of the batch that runs
  bool batch_was_full_ = false;

  // Scratch of one choice.
  const Replica* replica_ = nullptr;
  const LossTrials* trials_ = nullptr;
  std::unique_ptr<ContiguousAllocator> trial_runs_;  // null: tables are not contiguous
  PrefixProviders providers_;
  std::vector<uint8_t> gone_;   // [running]: preempted by this choice
  uint32_t running_count_ = 0;  // of them, still there
  uint32_t places_ = 0;         // theirs, and those of their unborn siblings
  uint32_t budget_ = 0;         // tokens left
  uint32_t unpromised_ = 0;     // blocks that can be taken beside the promised
  uint32_t returning_ = 0;      // blocks that come back when the steps in flight are done
  bool counted_ending_ =
      false;  // `returning_` has the blocks of sequences whose last token is in flight
  // Shared blocks that tables leave with this choice.
  struct Dropped {
    uint32_t references = 0;
    bool in_flight = false;  // one of them is used by a step in flight, or by this one
  };
  absl::flat_hash_map<BlockId, Dropped> dropped_;
  bool short_of_blocks_ = false;  // somebody did not get what it needs
};

}  // namespace octavo
