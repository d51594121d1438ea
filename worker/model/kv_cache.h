#pragma once

// The memory behind the block pool: for each layer of a group, pages
// [block][K|V][kv_head][block_size][head_dim] of the cache's type, which the scheduler's tables
// name by block id. In come a layout and a block count, out comes the pool's handle. The ids
// themselves live in the scheduler (scheduler/core/block_pool.h).
//
// Thread rule: made and destroyed while no step runs.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "worker/device/backend.h"

namespace octavo {

class KvCache {
 public:
  // Address space only: a page costs memory once a token is written to it. `backend` is borrowed.
  // InvalidArgument or ResourceExhausted as Backend::CreateKvPool.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Backend& backend, const KvLayout& layout,
                                                         uint32_t num_blocks);
  ~KvCache() { backend_.DestroyKvPool(pool_); }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  KvPoolId pool() const { return pool_; }
  const KvLayout& layout() const { return layout_; }
  uint32_t num_blocks() const { return num_blocks_; }

 private:
  KvCache(Backend& backend, const KvLayout& layout, uint32_t num_blocks, KvPoolId pool)
      : backend_(backend), layout_(layout), num_blocks_(num_blocks), pool_(pool) {}

  Backend& backend_;
  KvLayout layout_;
  uint32_t num_blocks_;
  KvPoolId pool_;
};

}  // namespace octavo
