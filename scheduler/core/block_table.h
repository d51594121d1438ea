#pragma once

// A sequence's blocks in order: entry i holds the KV of positions [i * block_size, (i + 1) *
// block_size). Beside them, how much of it the prefix index and the worker know.
//
// Thread-compatible. Only KvLedger adds or drops blocks, since every entry is a reference that its
// pool counts. Invariants: (1) Entries [0, indexed_count) are in the prefix index, unless the
// sequence is not cached; `node` is their prefix. (2) The worker has entries [0, sent_count) after
// the last plan; `digest` is their sum.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/table_digest.h"
#include "scheduler/core/prefix_index.h"

namespace octavo {

class BlockTable {
 public:
  uint32_t size() const { return static_cast<uint32_t>(blocks_.size()); }
  bool empty() const { return blocks_.empty(); }
  BlockId operator[](uint32_t index) const { return blocks_[index]; }
  std::span<const BlockId> blocks() const { return blocks_; }

  uint32_t indexed_count() const { return indexed_count_; }
  const PrefixNode& node() const { return node_; }
  uint32_t sent_count() const { return sent_count_; }
  uint64_t digest() const { return digest_; }

  // The entries the worker does not have yet, as it is about to get them. Returns what they add to
  // the digest of all tables.
  uint64_t MarkSent(SequenceId sequence) {
    uint64_t added = 0;
    for (; sent_count_ < size(); ++sent_count_) {
      added += EntryDigest(sequence, sent_count_, blocks_[sent_count_]);
    }
    digest_ += added;
    return added;
  }
  // The entry, which the worker has, names another block now than `before`. Returns the change of
  // the digest of all tables.
  uint64_t MarkChanged(SequenceId sequence, uint32_t index, BlockId before) {
    const uint64_t change =
        EntryDigest(sequence, index, blocks_[index]) - EntryDigest(sequence, index, before);
    digest_ += change;
    return change;
  }
  // The worker has dropped the table.
  void MarkForgotten() {
    sent_count_ = 0;
    digest_ = 0;
  }

 private:
  friend class KvLedger;

  std::vector<BlockId> blocks_;
  uint32_t indexed_count_ = 0;
  uint32_t sent_count_ = 0;
  PrefixNode node_;
  uint64_t digest_ = 0;
};

}  // namespace octavo
