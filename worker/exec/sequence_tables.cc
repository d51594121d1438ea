#include "worker/exec/sequence_tables.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/table_digest.h"
#include "glog/logging.h"
#include "worker/exec/plan_check.h"

namespace octavo {

SequenceTables::SequenceTables(ReplicaId replica_id, Epoch epoch, const TableLimits& limits)
    : replica_id_(replica_id),
      limits_(limits),
      epoch_(epoch),
      digests_(limits.layer_group_count, 0) {
  free_slots_.reserve(limits.max_sequences);
  for (uint32_t slot = limits.max_sequences; slot-- > 0;) free_slots_.push_back(slot);
}

absl::StatusOr<SequenceTables::Order> SequenceTables::CheckOrder(const StepPlan& plan) const {
  if (plan.replica_id != replica_id_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan is for replica ", plan.replica_id.value(),
                     "; this worker is part of replica ", replica_id_.value()));
  }
  if (plan.epoch < epoch_) {
    return absl::FailedPreconditionError(absl::StrCat("the plan's epoch is ", plan.epoch.value(),
                                                      "; the highest seen is ", epoch_.value()));
  }
  if (plan.step.value() == 0)
    return absl::InvalidArgumentError("step is 0; steps are numbered from 1");
  if (plan.epoch > epoch_) {
    if (plan.resets_state) return Order::kNext;
    return absl::FailedPreconditionError(
        absl::StrCat("the plan's epoch is ", plan.epoch.value(), "; this worker is in ",
                     epoch_.value(), ": enter a new one with a plan that resets the state"));
  }
  const uint64_t step = plan.step.value();
  const uint64_t last = step_.value();
  if (step <= last && last - step < std::min<uint64_t>(applied_count_, kStoredResults))
    return Order::kRepeated;
  if (step > last && (plan.resets_state || step == last + 1)) return Order::kNext;
  return absl::FailedPreconditionError(absl::StrCat(
      "the plan is step ", step, " of epoch ", epoch_.value(), "; the last one applied is ", last,
      step <= last ? ", and its result is no longer stored"
                   : ", and only a plan that resets the state may skip",
      ": resynchronise"));
}

absl::Status SequenceTables::Check(const StepPlan& plan) const {
  return PlanCheck(plan, limits_, sequences_, digests_).Run();
}

void SequenceTables::Apply(const StepPlan& plan) {
  if (plan.resets_state) {
    for (const auto& [id, state] : sequences_) free_slots_.push_back(state.slot);
    sequences_.clear();
    digests_.assign(limits_.layer_group_count, 0);
  }
  for (SequenceId id : plan.releases) Release(id);
  for (const SequenceStart& start : plan.starts) Start(start);
  for (size_t group = 0; group < plan.layer_groups.size(); ++group) {
    const LayerGroupChange& change = plan.layer_groups[group];
    size_t next = 0;
    for (size_t row = 0; row < plan.rows.size(); ++row) {
      const SequenceId id = plan.rows[row].sequence_id;
      MirroredSequence& state = sequences_.at(id);
      for (uint32_t i = 0; i < change.new_block_counts[row]; ++i) {
        const BlockId block = change.new_blocks[next++];
        state.digests[group] +=
            EntryDigest(id, static_cast<uint32_t>(state.tables[group].size()), block);
        digests_[group] +=
            EntryDigest(id, static_cast<uint32_t>(state.tables[group].size()), block);
        state.tables[group].push_back(block);
      }
    }
    for (const TableEntryChange& entry : change.entry_changes) {
      MirroredSequence& state = sequences_.at(entry.sequence_id);
      BlockId& block = state.tables[group][entry.index];
      const uint64_t difference = EntryDigest(entry.sequence_id, entry.index, entry.block) -
                                  EntryDigest(entry.sequence_id, entry.index, block);
      state.digests[group] += difference;
      digests_[group] += difference;
      block = entry.block;
    }
  }
  for (const PlanRow& row : plan.rows) {
    MirroredSequence& state = sequences_.at(row.sequence_id);
    state.computed_end = row.first_position + row.token_count;
    state.sampled_position = row.samples ? state.computed_end : std::nullopt;
  }
  applied_count_ =
      plan.epoch == epoch_ && plan.step.value() == step_.value() + 1 ? applied_count_ + 1 : 1;
  epoch_ = plan.epoch;
  step_ = plan.step;
}

void SequenceTables::Release(SequenceId id) {
  const auto it = sequences_.find(id);
  for (size_t group = 0; group < digests_.size(); ++group)
    digests_[group] -= it->second.digests[group];
  free_slots_.push_back(it->second.slot);
  sequences_.erase(it);
}

void SequenceTables::Start(const SequenceStart& start) {
  CHECK(!free_slots_.empty());
  MirroredSequence state{.slot = free_slots_.back(),
                         .seed = start.seed,
                         .prompt_token_count = start.prompt_token_count,
                         .sampling = start.sampling,
                         .history = start.history,
                         .computed_end = std::nullopt,
                         .sampled_position = std::nullopt,
                         .tables = std::vector<std::vector<BlockId>>(limits_.layer_group_count),
                         .digests = std::vector<uint64_t>(limits_.layer_group_count, 0)};
  free_slots_.pop_back();
  sequences_.emplace(start.sequence_id, std::move(state));
}

const MirroredSequence* SequenceTables::Find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

void SequenceTables::CheckInvariants() const {
  std::vector<uint64_t> digests(limits_.layer_group_count, 0);
  absl::flat_hash_set<uint32_t> slots(free_slots_.begin(), free_slots_.end());
  CHECK_EQ(slots.size(), free_slots_.size());
  for (const auto& [id, state] : sequences_) {
    CHECK_LT(state.slot, limits_.max_sequences);
    CHECK(slots.insert(state.slot).second) << "slot " << state.slot << " is taken twice";
    for (size_t group = 0; group < digests.size(); ++group) {
      uint64_t digest = 0;
      CHECK_LE(state.tables[group].size(), limits_.max_table_blocks());
      for (uint32_t index = 0; index < state.tables[group].size(); ++index) {
        CHECK_LT(state.tables[group][index].value(), limits_.num_blocks);
        digest += EntryDigest(id, index, state.tables[group][index]);
      }
      CHECK_EQ(digest, state.digests[group]);
      digests[group] += digest;
    }
  }
  CHECK_EQ(slots.size(), limits_.max_sequences);
  CHECK(digests == digests_);
}

}  // namespace octavo
