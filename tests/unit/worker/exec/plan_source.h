#pragma once

// A scheduler reduced to what the worker can see of it: random but valid plans, and the tables that
// they should leave behind, kept in the plainest possible way. Chance comes from one seed.

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "common/step_plan.h"
#include "common/table_digest.h"
#include "worker/exec/sequence_tables.h"

namespace octavo {

class PlanSource {
 public:
  PlanSource(uint64_t seed, const TableLimits& limits, Epoch epoch)
      : random_(seed), limits_(limits), epoch_(epoch) {
    for (uint32_t block = 0; block < limits.num_blocks; ++block) free_.push_back(BlockId(block));
  }

  struct Sequence {
    std::vector<BlockId> table;
    uint32_t length = 0;  // tokens computed
    uint32_t prompt = 0;
    bool sampled = false;
  };
  const std::map<SequenceId, Sequence>& sequences() const { return sequences_; }
  uint64_t Digest() const {
    uint64_t digest = 0;
    for (const auto& [id, sequence] : sequences_) {
      for (uint32_t i = 0; i < sequence.table.size(); ++i)
        digest += EntryDigest(id, i, sequence.table[i]);
    }
    return digest;
  }

  // The next plan; the tables are those after it.
  StepPlan Next() {
    StepPlan plan = Empty();
    ReleaseSome(plan);
    StartSome(plan);
    ExtendSome(plan);
    plan.layer_groups[0].digest = Digest();
    return plan;
  }

  // A plan that resets the worker and states everything again: every sequence is started, and its
  // whole table sent with a row that computes its last token once more.
  StepPlan Resync() {
    StepPlan plan = Empty();
    plan.resets_state = true;
    LayerGroupChange& change = plan.layer_groups[0];
    for (auto& [id, sequence] : sequences_) {
      plan.starts.push_back(
          {.sequence_id = id, .seed = id.value(), .prompt_token_count = sequence.prompt});
      plan.rows.push_back(
          {.sequence_id = id, .first_position = sequence.length - 1, .token_count = 1});
      plan.token_ids.push_back(RandomToken());
      change.new_block_counts.push_back(static_cast<uint32_t>(sequence.table.size()));
      change.new_blocks.insert(change.new_blocks.end(), sequence.table.begin(),
                               sequence.table.end());
      sequence.sampled = false;
    }
    change.digest = Digest();
    return plan;
  }

  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  void SkipStep() { ++step_; }

 private:
  StepPlan Empty() {
    return {.epoch = epoch_, .step = StepNumber(++step_), .layer_groups = {LayerGroupChange{}}};
  }
  TokenId RandomToken() { return static_cast<TokenId>(Below(limits_.vocab_size)); }
  BlockId Take() {
    const size_t at = Below(static_cast<uint32_t>(free_.size()));
    const BlockId block = free_[at];
    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(at));
    return block;
  }

  void ReleaseSome(StepPlan& plan) {
    for (auto it = sequences_.begin(); it != sequences_.end();) {
      if (Below(8) != 0) {
        ++it;
        continue;
      }
      plan.releases.push_back(it->first);
      free_.insert(free_.end(), it->second.table.begin(), it->second.table.end());
      it = sequences_.erase(it);
    }
  }

  void StartSome(StepPlan& plan) {
    while (sequences_.size() < limits_.max_sequences && Below(2) == 0 && free_.size() > 8) {
      const SequenceId id(next_id_++);
      const uint32_t prompt = 1 + Below(10);
      plan.starts.push_back({.sequence_id = id, .seed = id.value(), .prompt_token_count = prompt});
      sequences_[id] = {.table = {}, .length = 0, .prompt = prompt, .sampled = false};
    }
  }

  void ExtendSome(StepPlan& plan) {
    LayerGroupChange& change = plan.layer_groups[0];
    uint32_t budget = limits_.max_tokens_per_step;
    for (auto& [id, sequence] : sequences_) {
      const bool fresh =
          sequence.length ==
          0;  // the whole table must not stay empty, so that a resync has a row for it
      if (!fresh && Below(3) == 0) continue;
      const uint32_t count = 1 + Below(6);
      const uint32_t end = sequence.length + count;
      const uint32_t blocks = (end + limits_.block_size - 1) / limits_.block_size;
      if (count > budget || end > limits_.max_positions) continue;
      if (blocks > sequence.table.size() + free_.size()) continue;
      budget -= count;
      PlanRow row{.sequence_id = id,
                  .first_position = sequence.length,
                  .token_count = count,
                  .samples = Below(2) == 0};
      row.feeds_sampled = sequence.sampled && count == 1;
      plan.rows.push_back(row);
      for (uint32_t i = row.feeds_sampled ? 1 : 0; i < count; ++i)
        plan.token_ids.push_back(RandomToken());
      change.new_block_counts.push_back(blocks - static_cast<uint32_t>(sequence.table.size()));
      while (sequence.table.size() < blocks) {
        change.new_blocks.push_back(Take());
        sequence.table.push_back(change.new_blocks.back());
      }
      // Copy on write: an entry names another block from here on.
      if (Below(4) == 0 && !free_.empty()) {
        const uint32_t index = Below(blocks);
        const BlockId before = sequence.table[index];
        const BlockId block = Take();
        change.entry_changes.push_back({id, index, block});
        change.copies.push_back({before, block, 1 + Below(limits_.block_size)});
        sequence.table[index] = block;
        free_.push_back(before);
      }
      sequence.length = end;
      sequence.sampled = row.samples;
    }
    // A sequence that found no room leaves at once.
    for (auto it = sequences_.begin(); it != sequences_.end();) {
      if (it->second.length != 0) {
        ++it;
        continue;
      }
      std::erase_if(plan.starts,
                    [&](const SequenceStart& start) { return start.sequence_id == it->first; });
      it = sequences_.erase(it);
    }
  }

  std::mt19937_64 random_;
  TableLimits limits_;
  Epoch epoch_;
  uint64_t step_ = 0;
  uint64_t next_id_ = 1;
  std::vector<BlockId> free_;
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace octavo
