#pragma once

// The books of one layer group's KV memory: the pool, the prefix index, and the blocks that are on
// their way back. Every block that changes hands does so here, so that pool and index cannot
// disagree.
//
// In: block tables to extend, share into and release; steps that are done. Out: block ids.
// Thread-compatible: owned by the engine's loop.
// Invariants: (1) A block has a prefix in the pool iff it is in the index. (2) A block released
// while a step in flight uses it stays held until that step is done. (3) Only content that a
// completed step has written is indexed.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/kv_layout.h"
#include "scheduler/core/block_pool.h"
#include "scheduler/core/block_table.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/prefix_index.h"

namespace octavo {

// Blocks that already hold the beginning of some tokens.
struct PrefixHit {
  std::vector<BlockId> blocks;
  PrefixNode node;
  uint32_t token_count = 0;
  uint32_t idle_block_count = 0;  // of them, those nobody holds: taking them makes fewer available
};

class KvLedger {
 public:
  // REQUIRES: layout.Validate() is OK; block_count >= 1. `prefix_cache` false: nothing is ever
  // indexed.
  KvLedger(const KvLayout& layout, uint32_t block_count, bool prefix_cache, uint64_t prefix_seed);

  const KvLayout& layout() const { return layout_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixIndex& index() const { return index_; }
  uint32_t available_count() const { return pool_.available_count(); }
  uint32_t returning_count() const { return returning_count_; }
  uint64_t evicted_count() const { return evicted_count_; }

  // The longest indexed prefix of `tokens`, at most all of them but the last (one must be computed
  // to get the next). Changes nothing.
  PrefixHit FindPrefix(std::span<const TokenId> tokens, absl::string_view scope) const;
  // How many blocks releasing the table would really bring back: those nobody else holds.
  uint32_t CountFreedBy(const BlockTable& table) const;

  // Starts a table with a hit's blocks. REQUIRES: the table is empty; nothing was taken or released
  // since FindPrefix.
  void Share(const PrefixHit& hit, BlockTable& table);
  // Extends the table. REQUIRES: count <= available_count().
  void Append(uint32_t count, BlockTable& table);
  // Indexes the blocks that are full now: the KV of tokens [0, written_count) is written, the last
  // of it by `step`.
  void IndexFull(std::span<const TokenId> tokens, uint32_t written_count, absl::string_view scope,
                 StepNumber step, BlockTable& table);
  // Gives all blocks up, the last first, and empties the table.
  void Release(BlockTable& table);
  // The same, but the blocks stay held until `step`, which still uses them, is done.
  void ReleaseAfter(StepNumber step, BlockTable& table);
  // Steps up to `step` are done: what waited for them comes back.
  void CompleteThrough(StepNumber step);
  // Forgets every cached prefix. FailedPrecondition with the number of held blocks, if there are
  // any.
  absl::Status ResetPrefixes();

  BlockRecord Describe(BlockId block) const;
  // `references[b]`: how many block tables name block b. Everything indexed must be valid since a
  // step up to `completed`.
  absl::Status CheckInvariants(std::vector<uint32_t> references, StepNumber completed) const;

 private:
  struct Returning {
    StepNumber step;
    std::vector<BlockId> blocks;  // in the order of their release
  };

  KvLayout layout_;
  BlockPool pool_;
  PrefixIndex index_;
  bool prefix_cache_;
  std::vector<Returning> returning_;  // in the order they were given up
  uint32_t returning_count_ = 0;      // blocks in it
  uint64_t evicted_count_ = 0;
};

}  // namespace octavo
