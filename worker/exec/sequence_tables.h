#pragma once

// The worker's mirror of the scheduler's sequences and block tables. In come step plans; each is
// checked whole (Check) before anything is changed (Apply), so a plan is applied or refused, never
// half. The digest of all tables, which every plan carries, proves that both sides mean the same
// pages.
//
// Thread rule: thread-compatible; owned by the executor.
// Invariants:
// (1) digest(g) is the sum of EntryDigest over every entry of every table of group g
// (common/table_digest.h). (2) Slots of known sequences differ and are below max_sequences. (3)
// Every block id in a table is below num_blocks, and a table holds at most max_table_blocks.

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/sampling_params.h"
#include "common/step_plan.h"

namespace octavo {

// Numbers of the last applied plans that are answered from their stored results.
constexpr uint32_t kStoredResults = 4;

struct TableLimits {
  uint32_t layer_group_count = 1;
  uint32_t num_blocks = 0;
  uint32_t block_size = 16;
  uint32_t vocab_size = 0;
  uint32_t max_positions = 0;  // tokens a sequence can have computed
  uint32_t max_sequences = 0;  // known at a time
  uint32_t max_tokens_per_step = 0;

  // Of one sequence: what max_positions fill, rounded up as a buddy's run of them may be.
  uint32_t max_table_blocks() const {
    return std::bit_ceil((max_positions + block_size - 1) / block_size);
  }

  friend bool operator==(const TableLimits&, const TableLimits&) = default;
};

// What the worker knows of one sequence.
struct MirroredSequence {
  uint32_t slot = 0;
  uint64_t seed = 0;
  uint32_t prompt_token_count = 0;
  SamplingParams sampling;
  std::vector<TokenId>
      history;  // as it was at the start; empty unless penalties or scoring need it
  std::optional<uint32_t>
      computed_end;  // tokens before it were computed here, or were there at the start
  std::optional<uint32_t> sampled_position;  // of the token sampled last
  std::vector<std::vector<BlockId>> tables;  // [layer_group_count], blocks in order
  std::vector<uint64_t> digests;             // [layer_group_count], of these tables

  friend bool operator==(const MirroredSequence&, const MirroredSequence&) = default;
};

class SequenceTables {
 public:
  SequenceTables(ReplicaId replica_id, Epoch epoch, const TableLimits& limits);

  enum class Order {
    kNext,      // the plan is new: Check and Apply it
    kRepeated,  // it was applied, among the last kStoredResults
  };
  // FailedPrecondition, naming both numbers, for an epoch below the highest seen, an epoch not
  // entered or a step out of order: the scheduler must resynchronise with a plan that resets the
  // state. InvalidArgument for another replica's plan.
  absl::StatusOr<Order> CheckOrder(const StepPlan& plan) const;

  // REQUIRES: CheckOrder(plan) is kNext. InvalidArgument for a plan that contradicts itself, the
  // tables or the limits, naming field, value and limit; FailedPrecondition with both values
  // (payloads of worker/exec/executor.h) where the digest differs.
  absl::Status Check(const StepPlan& plan) const;

  // REQUIRES: Check(plan) is ok.
  void Apply(const StepPlan& plan);

  const TableLimits& limits() const { return limits_; }
  Epoch epoch() const { return epoch_; }
  StepNumber step() const { return step_; }  // last applied, 0 before the first
  size_t sequence_count() const { return sequences_.size(); }
  const std::vector<uint64_t>& digests() const { return digests_; }
  // Null where unknown.
  const MirroredSequence* Find(SequenceId id) const;

  // Recomputes every digest and checks the invariants; CHECKs.
  void CheckInvariants() const;

  friend bool operator==(const SequenceTables&, const SequenceTables&) = default;

 private:
  void Release(SequenceId id);
  void Start(const SequenceStart& start);

  ReplicaId replica_id_;
  TableLimits limits_;
  Epoch epoch_;
  StepNumber step_;
  uint64_t applied_count_ = 0;  // plans applied in this epoch, in a row without a jump
  absl::flat_hash_map<SequenceId, MirroredSequence> sequences_;
  std::vector<uint32_t> free_slots_;
  std::vector<uint64_t> digests_;  // [layer_group_count]
};

}  // namespace octavo
