#pragma once

// The checks of SequenceTables::Check: a plan against itself, against the limits and against the
// sequences known before it. Reads only. A view of what the sequences will be once releases and
// starts are applied stands in for applying them.
//
// Thread rule: a PlanCheck lives within one call.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/step_plan.h"
#include "worker/exec/sequence_tables.h"

namespace octavo {

class PlanCheck {
 public:
  // All borrowed. `digests` are those before the plan.
  PlanCheck(const StepPlan& plan, const TableLimits& limits,
            const absl::flat_hash_map<SequenceId, MirroredSequence>& sequences,
            const std::vector<uint64_t>& digests)
      : plan_(plan), limits_(limits), sequences_(sequences), digests_(digests) {}

  absl::Status Run();

 private:
  // A sequence once releases and starts are applied: one known before, or one that the plan starts.
  struct View {
    const MirroredSequence* state = nullptr;  // null where the plan starts it
    const SequenceStart* start = nullptr;
    int64_t row = -1;  // its row in the plan

    size_t TableSize(size_t group) const {
      return state == nullptr ? 0 : state->tables[group].size();
    }
    bool HasHistory() const {
      return state == nullptr ? !start->history.empty() : !state->history.empty();
    }
  };

  absl::Status CheckReleases();
  absl::Status CheckStarts();
  absl::Status CheckStart(const SequenceStart& start) const;
  absl::Status CheckRows();
  absl::Status CheckRow(size_t row, const View& view) const;
  // `computed`: the nearest row above that computes tokens; null where there is none.
  absl::Status CheckSharedLogits(const PlanRow& row, const PlanRow* computed) const;
  absl::Status CheckTokens() const;
  absl::Status CheckGroup(size_t group);
  absl::Status CheckEntryChanges(const LayerGroupChange& change, size_t group);
  absl::Status CheckCoverage(const LayerGroupChange& change, size_t group);
  absl::Status CheckCopies(const LayerGroupChange& change) const;
  absl::Status CheckDigest(const LayerGroupChange& change, size_t group) const;

  absl::Status CheckBlock(const char* what, BlockId block) const;
  // InvalidArgument where the plan does not know the sequence.
  absl::StatusOr<View> Find(SequenceId id) const;
  // The block at `index` of the row's table before entry changes. REQUIRES: index < its size after
  // appends.
  BlockId EntryBefore(const LayerGroupChange& change, const View& view, size_t group,
                      uint32_t index) const;

  const StepPlan& plan_;
  const TableLimits& limits_;
  const absl::flat_hash_map<SequenceId, MirroredSequence>& sequences_;
  const std::vector<uint64_t>& digests_;

  absl::flat_hash_set<SequenceId> released_;
  absl::flat_hash_map<SequenceId, const SequenceStart*> started_;
  absl::flat_hash_map<SequenceId, uint32_t> row_of_;
  std::vector<View> row_views_;  // [row_count]
  std::vector<uint64_t>
      block_begins_;  // [row_count + 1], offsets into new_blocks of the group at hand
  absl::flat_hash_map<std::pair<SequenceId, uint32_t>, BlockId>
      changed_;  // entries that the group at hand changes
};

}  // namespace octavo
