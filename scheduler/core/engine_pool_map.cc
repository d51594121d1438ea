// Engine: the pool as a map, for who wants to see all of it at once.

#include "absl/container/flat_hash_map.h"
#include "glog/logging.h"
#include "scheduler/core/engine.h"

namespace octavo {

PoolMap Engine::MapPool(uint32_t max_cells) const {
  CHECK_GE(max_cells, 1u);
  PoolMap map;
  if (!replica_) return map;
  const BlockPool& pool = replica_->ledger.pool();
  map.blocks_per_cell = (pool.capacity() + max_cells - 1) / max_cells;
  map.cells.resize((pool.capacity() + map.blocks_per_cell - 1) / map.blocks_per_cell);
  for (uint32_t i = 0; i < pool.capacity(); ++i) {
    PoolCell& cell = map.cells[i / map.blocks_per_cell];
    const BlockState state = pool.state(BlockId(i));
    cell.free_count += state == BlockState::kFree;
    cell.cached_count += state == BlockState::kCached;
    cell.held_count += state == BlockState::kHeld;
    cell.shared_count += pool.reference_count(BlockId(i)) > 1;
  }
  // Request by request, in the order of arrival: of two that hold as much the earlier is named.
  std::vector<uint32_t> most(map.cells.size());
  for (const auto& [id, request] : requests_) {
    absl::flat_hash_map<uint32_t, uint32_t> held;  // blocks that it alone holds, by cell
    for (const SequenceSlot slot : request->sequences) {
      for (const BlockId block : sequences_[slot].table.blocks()) {
        if (pool.reference_count(block) == 1) ++held[block.value() / map.blocks_per_cell];
      }
    }
    for (const auto& [cell, count] : held) {
      if (count <= most[cell]) continue;
      most[cell] = count;
      map.cells[cell].owner = id;
    }
  }
  return map;
}

}  // namespace octavo
