#pragma once

// The books of one layer group's KV memory: the pool, the prefix index, and the blocks that are on
// their way back. Every block that changes hands does so here, so that pool and index cannot
// disagree.
//
// In: block tables to extend, share into and release; steps that are done. Out: block ids.
// Thread-compatible: owned by the engine's loop.
// Invariants: (1) A block has a prefix in the pool iff it is in the index. (2) A block released
// while a step in flight uses it stays held until that step is done. (3) What is indexed was
// written by a completed step, or will be by the step in flight that it is valid from; then it is
// held. (4) A leaf, that is an indexed block that is not full, is in no table: who has its tokens
// has a copy, so nobody writes into what others may read. (5) Tables share a block that is not full
// only by Fork, and until somebody writes it: Unshare.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/kv_layout.h"
#include "scheduler/core/block_pool.h"
#include "scheduler/core/block_table.h"
#include "scheduler/core/contiguous_allocator.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/prefix_index.h"

namespace octavo {

// What already holds the beginning of some tokens: whole blocks, then a part of another one, whose
// tokens are copied to a block of one's own.
struct PrefixHit {
  std::vector<BlockId> blocks;    // whole ones, to be shared
  PrefixNode node;                // of their prefix
  PrefixRun run;                  // to be copied; token_count 0: nothing
  uint32_t token_count = 0;       // of blocks and run together
  uint32_t idle_block_count = 0;  // blocks, and the run's, that nobody holds: taking them makes
                                  // fewer available
  bool run_is_idle = false;       // the run's is one of them

  uint32_t block_count() const { return static_cast<uint32_t>(blocks.size()); }
  // Whole blocks only: the run's block need not be there any more.
  void DropRun() {
    token_count -= run.token_count;
    idle_block_count -= run_is_idle;
    run = {};
    run_is_idle = false;
  }

  friend bool operator==(const PrefixHit&, const PrefixHit&) = default;
};

class KvLedger {
 public:
  // REQUIRES: layout.Validate() is OK; block_count >= 1; prefix_match_unit >= 1. `prefix_cache`
  // false: nothing is ever indexed. Runs of a block's tokens are found in multiples of
  // `prefix_match_unit`: from block_size on none is, and no part-filled block is indexed.
  KvLedger(const KvLayout& layout, uint32_t block_count, bool prefix_cache,
           uint32_t prefix_match_unit, uint64_t prefix_seed);

  // From now on tables are contiguous runs of `kind`'s, given whole by Reserve, as the policies do
  // that came before paging. REQUIRES: no prefix cache; nothing was taken yet.
  void UseContiguousRuns(ContiguousAllocatorKind kind);

  const KvLayout& layout() const { return layout_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixIndex& index() const { return index_; }
  uint32_t available_count() const { return pool_.available_count(); }
  uint32_t returning_count() const { return returning_count_; }
  uint64_t evicted_count() const { return evicted_count_; }

  // The longest indexed prefix of `tokens`, at most all of them but the last (one must be computed
  // to get the next). Changes nothing. `earlier`: what it gave before for these tokens, or for the
  // first of them, in the same scope; it makes the lookup cheaper and changes nothing else.
  PrefixHit FindPrefix(std::span<const TokenId> tokens, absl::string_view scope,
                       PrefixHit earlier = {}) const;
  // How many blocks releasing the table would really bring back: those nobody else holds.
  uint32_t CountFreedBy(const BlockTable& table) const;
  // How many tables name the block.
  uint32_t table_count(BlockId block) const {
    return pool_.reference_count(block) - returning_references_[block.value()];
  }

  // Starts a table with a hit's blocks, and holds the block of its run, if it has one, until
  // ReleaseAfter: the caller has its tokens copied. REQUIRES: the table is empty; nothing was taken
  // or released since FindPrefix.
  void Share(const PrefixHit& hit, BlockTable& table);
  // The free runs, to try an order of Reserves out; null where tables are not contiguous.
  std::unique_ptr<ContiguousAllocator> TrialRuns() const;
  // Makes the table a contiguous run of at least `count` blocks. REQUIRES: UseContiguousRuns; the
  // table is empty; TrialRuns()->Allocate(count) succeeds.
  void Reserve(uint32_t count, BlockTable& table);
  // Starts a table with the first `count` blocks of another one. REQUIRES: the table is empty;
  // count is 1 to from.indexed_count().
  void ShareBeginning(const BlockTable& from, uint32_t count, BlockTable& table);
  // Starts a table with the first `block_count` blocks of another. The last of them may be
  // part-filled: both sequences unshare it before they write. REQUIRES: `child` is empty.
  void Fork(const BlockTable& parent, uint32_t block_count, BlockTable& child);
  // Copy-on-write: entry `index` becomes a block that is taken, the table's own. Returns the block
  // that stood there, which stays held until `step`, which copies it, is done. REQUIRES:
  // available_count() > 0; index is table.size() - 1 and not indexed; another table names the
  // block.
  BlockId Unshare(uint32_t index, StepNumber step, BlockTable& table);
  // Extends the table. REQUIRES: count <= available_count(); tables are not contiguous.
  void Append(uint32_t count, BlockTable& table);
  // Indexes the blocks that are full now: the KV of tokens [0, written_count) is written, or, where
  // `step` is in flight, will be when it is done.
  void IndexFull(std::span<const TokenId> tokens, uint32_t written_count, absl::string_view scope,
                 StepNumber step, BlockTable& table);
  // Indexes the part-filled block after those, as a leaf, unless a block begins with its tokens
  // already, or it is indexed ahead of its step. Step `step` is done and has written the last of
  // it. The sequence leaves the block: what follows is Release or ReleaseAfter, and steps in flight
  // write above `written_count` only. A block that another table names too is left to that
  // one.
  void IndexLeaf(std::span<const TokenId> tokens, uint32_t written_count, absl::string_view scope,
                 StepNumber step, BlockTable& table);
  // The step that was to fill the block failed. REQUIRES: what was indexed after it, by whoever has
  // it in its table, was unindexed before it.
  void Unindex(BlockId block);
  // Of the table's blocks no more than those of its first `written_count` tokens are indexed now.
  void RewindIndexed(uint32_t written_count, BlockTable& table);
  // Gives all blocks up, the last first, and empties the table.
  void Release(BlockTable& table);
  // The same, but the blocks stay held until `step`, which still uses them, is done.
  void ReleaseAfter(StepNumber step, BlockTable& table);
  void ReleaseAfter(StepNumber step, BlockId block);
  // Steps up to `step` are done: what waited for them comes back.
  void CompleteThrough(StepNumber step);
  // Forgets every cached prefix. FailedPrecondition with the number of held blocks, if there are
  // any.
  absl::Status ResetPrefixes();

  // From now on changes of the index are told to `recorder`, which is borrowed; null: to nobody.
  void RecordInto(KvEventRecorder* recorder) { index_.RecordInto(recorder); }

  BlockRecord Describe(BlockId block) const;
  // `references[b]`: how many block tables name block b. Everything indexed must be valid since a
  // step up to `completed`, but for the blocks of `ahead`, which are held.
  absl::Status CheckInvariants(std::vector<uint32_t> references, StepNumber completed,
                               std::span<const BlockId> ahead = {}) const;

 private:
  struct Returning {
    StepNumber step;
    std::vector<BlockId> blocks;  // in the order of their release
  };

  // The blocks, which stand in the order they are given up, are free for others now.
  void GiveBack(std::span<const BlockId> blocks);
  // The block that is reused first, evicted if it was cached.
  BlockId Take();
  // Returns the node of the prefix that ends with the block.
  PrefixNode Index(BlockId block, absl::string_view scope, const PrefixNode& parent,
                   std::span<const TokenId> tokens, StepNumber step,
                   std::optional<PrefixKey> key = {});
  // What comes next in the queue is likely to be evicted soon.
  void PrefetchEvictions() const;

  KvLayout layout_;
  BlockPool pool_;
  PrefixIndex index_;
  bool prefix_cache_;
  uint32_t prefix_match_unit_;
  std::unique_ptr<ContiguousAllocator> runs_;   // beside the pool; null: tables are not contiguous
  std::vector<Returning> returning_;            // in the order they were given up
  uint32_t returning_count_ = 0;                // blocks in it
  std::vector<uint32_t> returning_references_;  // [capacity]: how often a block is in it
  uint64_t evicted_count_ = 0;
};

}  // namespace octavo
