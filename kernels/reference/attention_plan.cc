#include <algorithm>

#include "kernels/paged_attention.h"

namespace octavo::kernels {
namespace {

// Partials that leaving splits to others may take in scratch, at most: beyond it there are rows
// enough to share anyway.
constexpr int64_t kMaxPartials = 8192;
// Items per thread below which splits are handed out one by one, so that threads end at about the
// same time.
constexpr int64_t kItemsPerThread = 16;

int64_t SplitCount(int64_t last_position) { return last_position / kAttentionSplit + 1; }

// The rows after `row` that continue its sequence, position by position, and fit in one tile.
int64_t RowsOfTile(const KvRows& rows, int64_t row, int64_t most) {
  int64_t count = 1;
  while (count < most && row + count < rows.row_count &&
         rows.sequences[row + count] == rows.sequences[row] &&
         rows.positions[row + count] == rows.positions[row] + count) {
    ++count;
  }
  return count;
}

// An item for each split, and a merge for each row over the splits it sees.
void AddSharedTile(const KvRows& rows, int64_t row, int64_t count, int64_t splits,
                   AttentionPlan* plan) {
  const int64_t base = plan->partial_count;
  for (int64_t split = 0; split < splits; ++split) {
    plan->items.push_back({.first_row = static_cast<int32_t>(row),
                           .row_count = static_cast<int32_t>(count),
                           .first_split = static_cast<int32_t>(split),
                           .split_count = 1,
                           .first_partial = base + split * count});
  }
  for (int64_t i = 0; i < count; ++i) {
    plan->merges.push_back(
        {.row = static_cast<int32_t>(row + i),
         .partial_count = static_cast<int32_t>(SplitCount(rows.positions[row + i])),
         .first_partial = base + i,
         .partial_stride = count});
  }
  plan->partial_count += count * splits;
}

int64_t PartialSlotFloats(const AttentionShape& shape) {
  return shape.query_head_count * (shape.head_dim + 16);
}

}  // namespace

void PlanPagedAttention(const AttentionShape& shape, const KvRows& rows, AttentionPlan* plan) {
  plan->items.clear();
  plan->merges.clear();
  plan->partial_count = 0;
  const int64_t group = shape.query_head_count / shape.kv_head_count;
  const int64_t most_rows = std::max<int64_t>(1, kAttentionTileVectors / group);
  int64_t tiles = 0;
  for (int64_t row = 0; row < rows.row_count; ++tiles) row += RowsOfTile(rows, row, most_rows);
  const bool few = tiles * shape.kv_head_count < kItemsPerThread * shape.thread_count;
  for (int64_t row = 0; row < rows.row_count;) {
    const int64_t count = RowsOfTile(rows, row, most_rows);
    const int64_t splits = SplitCount(rows.positions[row] + count - 1);
    // Single rows are shared out by split even when there are many: their partials are small beside
    // the keys and values they read, and sequences of very different lengths meet in one step.
    const bool shares = shape.thread_count > 1 && splits > 1 && (few || count == 1) &&
                        plan->partial_count + count * splits <= kMaxPartials;
    if (shares) {
      AddSharedTile(rows, row, count, splits, plan);
    } else {
      plan->items.push_back({.first_row = static_cast<int32_t>(row),
                             .row_count = static_cast<int32_t>(count),
                             .first_split = 0,
                             .split_count = static_cast<int32_t>(splits)});
    }
    row += count;
  }
}

int64_t AttentionScratchFloats(const AttentionShape& shape, const AttentionPlan& plan) {
  return plan.partial_count * PartialSlotFloats(shape);
}

}  // namespace octavo::kernels
