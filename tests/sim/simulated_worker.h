#pragma once

// A worker made of hashes, that catches every paging error. A KV slot holds a hash of its token,
// its position and the slot before it; a row reads back all slots of its sequence through the block
// table that plans built up, and what it samples is a hash of what it read. So a block that is
// stale, shared wrongly, freed early, overwritten or copied wrongly changes the token, and the
// stream differs from the one the request alone would have produced (ExpectedToken).
//
// Logits that are not finite (FailNextRow) leave poison in the slots their row writes, which spoils
// every slot and row that is computed from them: such a row fails too.
//
// It keeps the protocol: tables from deltas, the digest checked before anything is changed, copies
// after the tables and before the rows with all reads before all writes, a plan applied once and a
// repeated step number answered from the stored result.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "common/step_plan.h"
#include "common/step_result.h"

namespace octavo {

// The token a sequence with this seed has after `tokens`, 0 <= id < vocabulary.
TokenId ExpectedToken(std::span<const TokenId> tokens, uint64_t seed, uint32_t vocabulary);
// The log-probability of tokens[position] after those before it.
float ExpectedScore(std::span<const TokenId> tokens, uint32_t position);

// The `count` most likely next tokens after `tokens`, most likely first: the alternatives of the
// token that is sampled or scored there.
std::vector<TokenLogprob> ExpectedTop(std::span<const TokenId> tokens, uint32_t count,
                                      uint32_t vocabulary);

class SimulatedWorker {
 public:
  SimulatedWorker(Epoch epoch, const KvLayout& layout, uint32_t block_count, uint32_t vocabulary);

  // FailedPrecondition: the plan does not follow the last one, or its digest is not that of the
  // tables; nothing was changed. Internal: the plan is wrong in itself (a fault of the engine).
  absl::StatusOr<StepResult> Apply(const StepPlan& plan);

  // A row that samples in the next plan fails by itself, if there is one.
  void FailNextRow(uint64_t choice) { failure_ = choice; }
  // Whether a row of this sequence failed so.
  bool HasFailed(SequenceId id) const { return failed_.contains(id); }

  // Swaps one entry of some table, as a bug would; false if there is none to swap.
  bool CorruptTable(uint64_t choice);

 private:
  struct Sequence {
    uint64_t seed = 0;
    uint32_t prompt_token_count = 0;
    bool needs_history = false;
    uint32_t top_count = 0;  // alternatives it asks for
    std::vector<TokenId> history;
    std::vector<BlockId> table;
    StepNumber sampled_at;
    TokenId sampled = 0;
    uint32_t computed = 0;  // positions [0, computed) were computed or shared
  };
  using Tables = std::map<SequenceId, Sequence>;

  absl::Status ApplyTables(const StepPlan& plan, Tables& sequences) const;
  absl::Status ApplyCopies(std::span<const BlockCopy> copies);
  absl::Status Compute(const StepPlan& plan, const PlanRow& row, std::span<const TokenId>& inputs,
                       StepResult& result);
  // The sample that is born with a row of no tokens; `state` is what its row above ended with.
  absl::Status Bear(const StepPlan& plan, const PlanRow& row, StepResult& result);
  void Choose(const StepPlan& plan, const PlanRow& row, uint64_t state, StepResult& result);
  uint64_t& Slot(const Sequence& sequence, uint32_t position);

  Epoch epoch_;
  KvLayout layout_;
  uint32_t vocabulary_;
  std::vector<uint64_t> slots_;  // [block_count, block_size]
  Tables sequences_;
  // Of the last row that computed tokens.
  uint64_t row_state_ = 0;
  PlanRow computed_row_;
  std::vector<TokenLogprob> scored_top_;  // alternatives of the scored tokens of the step
  StepNumber last_step_;
  std::map<StepNumber, StepResult> stored_;
  std::optional<uint64_t> failure_;
  std::set<SequenceId> failed_;
};

}  // namespace octavo
