#pragma once

// The pool of KV blocks of one layer group, as ids; the memory itself lives in the worker
// (worker/model/kv_cache.h). It knows who is held and in which order the others are reused, not
// what they contain: that is the prefix index's.
//
// A block is free (count 0, no prefix), cached (count 0, its prefix still valid) or held (count >
// 0). Free and cached blocks stand in one queue in the order of their reuse; eviction is lazy: it
// happens when a cached block comes to the head and is taken.
//
// Thread-compatible: owned by the engine's loop.
// Invariants: (1) free + cached + held == capacity. (2) A block is held iff its reference count >
// 0, and in the queue iff it is 0.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "scheduler/core/introspection.h"

namespace octavo {

// A doubly linked list over block ids 0 to capacity - 1, its links in one array: push, pop and
// removal from the middle cost O(1) and never allocate.
class FreeQueue {
 public:
  explicit FreeQueue(uint32_t capacity);  // empty

  uint32_t size() const { return size_; }
  bool Contains(BlockId block) const { return links_[block.value()].next != kOut; }
  // The walk from head to tail: Front(), Next(…) … until `end()`.
  BlockId Front() const { return BlockId(links_[sentinel()].next); }
  BlockId Next(BlockId block) const { return BlockId(links_[block.value()].next); }
  BlockId end() const { return BlockId(sentinel()); }

  BlockId PopFront();             // REQUIRES: size() > 0
  void PushFront(BlockId block);  // REQUIRES: !Contains(block)
  void PushBack(BlockId block);   // REQUIRES: !Contains(block)
  void Remove(BlockId block);     // REQUIRES: Contains(block)

 private:
  struct Link {
    uint32_t previous;
    uint32_t next;
  };
  static constexpr uint32_t kOut = 0xFFFFFFFF;

  uint32_t sentinel() const { return static_cast<uint32_t>(links_.size() - 1); }
  void InsertBefore(uint32_t position, uint32_t block);

  std::vector<Link> links_;  // [capacity + 1]; the last is the list's head and tail in one
  uint32_t size_ = 0;
};

class BlockPool {
 public:
  // All blocks are free, in the order of their ids.
  explicit BlockPool(uint32_t capacity);

  uint32_t capacity() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t free_count() const { return queue_.size() - cached_count_; }
  uint32_t cached_count() const { return cached_count_; }
  uint32_t held_count() const { return capacity() - queue_.size(); }
  // Of the held blocks, those with more than one holder.
  uint32_t shared_count() const { return shared_count_; }
  // Blocks that can be taken: free and cached.
  uint32_t available_count() const { return queue_.size(); }

  uint32_t reference_count(BlockId block) const { return blocks_[block.value()].references; }
  bool has_prefix(BlockId block) const { return blocks_[block.value()].has_prefix; }
  BlockState state(BlockId block) const;

  // Takes the block that is reused first; its count becomes 1. `evicted` tells that it was cached:
  // its prefix mark is gone, and the caller takes it out of the index. REQUIRES: available_count()
  // > 0.
  struct Taken {
    BlockId block;
    bool evicted;
  };
  Taken Take();

  // Takes this very block. REQUIRES: it is free.
  void TakeFree(BlockId block);

  // One more holder. A cached block leaves the queue. REQUIRES: the block is held or cached.
  void AddReference(BlockId block);

  // One holder less for each of `blocks`, which stand in the order they are given up: a sequence's
  // last block first. Those that nobody holds any more join the queue: with a prefix at the tail,
  // one after the other (so a chain loses its end first); without one at the head, as a group in
  // the given order. REQUIRES: all are held.
  void Release(std::span<const BlockId> blocks);

  // The block's content entered the prefix index. REQUIRES: held.
  void MarkPrefix(BlockId block);
  // It left the index: a cached block is free now, and the next to be taken. REQUIRES:
  // has_prefix(block).
  void ClearPrefix(BlockId block);
  // No block has a prefix any more; the queue keeps its order. REQUIRES: held_count() == 0.
  void ClearPrefixes();

  const FreeQueue& queue() const { return queue_; }
  // The pool's own books: counts, states and links agree.
  absl::Status CheckInvariants() const;

 private:
  struct Block {
    uint32_t references : 31 = 0;
    uint32_t has_prefix : 1 = false;
  };

  std::vector<Block> blocks_;  // [capacity]
  FreeQueue queue_;
  uint32_t cached_count_ = 0;
  uint32_t shared_count_ = 0;
};

}  // namespace octavo
