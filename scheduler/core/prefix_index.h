#pragma once

// Which block holds the KV of which prefix. A block enters when it is full and its content is known
// to be written; it is found by whoever has the same tokens before and in it, under the same scope.
//
// Idea. A full block's identity is (the prefix before it, its tokens). Prefixes are chained: the
// key of a block is a 128-bit hash of its parent's key and its own tokens, so a lookup walks down
// one block at a time and stops where nothing matches. The hash only *finds*: what confirms is the
// stored tokens and the parent's node. A node is a number given to a distinct prefix when its first
// block enters and never used again, so by induction an equal node means equal tokens from the
// start, whatever the hash did. The scope (cache salt; later the adapter) chooses the root under
// which the first block stands, and is compared as a string.
//
// Two sequences may have computed the same prefix: then several blocks share a node. The one that
// entered first is found, the next takes its place when it is evicted.
//
// Layout. One 64-byte record and block_size tokens per block, chained into a table of bucket heads
// by links inside the records: nothing is allocated after construction (but a scope's string).
//
// Thread-compatible: owned by the engine's loop.
// Invariants: (1) An indexed block's parent node is a root or the node of another indexed block.
// (2) Node ids are never reused.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"

namespace octavo {

struct PrefixKey {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};

// A prefix of full blocks. id 0: the empty prefix, whatever its scope.
struct PrefixNode {
  uint64_t id = 0;
  PrefixKey key;

  friend bool operator==(const PrefixNode&, const PrefixNode&) = default;
};

class PrefixIndex {
 public:
  // `seed` keys the hashes, so that nobody outside can aim for one bucket. `key_bits` < 128 cuts
  // them: for tests of collisions.
  PrefixIndex(uint32_t capacity, uint32_t block_size, uint64_t seed, uint32_t key_bits = 128);

  // Appends the blocks of the longest indexed prefix of `tokens`, whole blocks only, and returns
  // its node.
  PrefixNode Find(std::span<const TokenId> tokens, absl::string_view scope,
                  std::vector<BlockId>& blocks) const;

  // Block `block` holds `tokens` after the prefix `parent`. Returns the node of the prefix that
  // ends with it. REQUIRES: !Contains(block); tokens.size() == block_size; `parent` is the empty
  // prefix or indexed under the same scope.
  PrefixNode Insert(BlockId block, absl::string_view scope, const PrefixNode& parent,
                    std::span<const TokenId> tokens, StepNumber valid_from);

  // REQUIRES: Contains(block).
  void Remove(BlockId block);
  void Clear();

  bool Contains(BlockId block) const { return records_[block.value()].node != 0; }
  uint32_t block_count() const { return block_count_; }    // indexed blocks
  uint32_t prefix_count() const { return prefix_count_; }  // distinct prefixes among them
  size_t scope_count() const { return roots_.size(); }

  // Of an indexed block.
  PrefixNode NodeOf(BlockId block) const;
  std::span<const TokenId> TokensOf(BlockId block) const;
  StepNumber ValidFrom(BlockId block) const { return records_[block.value()].valid_from; }
  // An indexed block of the prefix before it; absent for the first block of a sequence.
  std::optional<BlockId> ParentOf(BlockId block) const;

  // Every record is reachable by its key, its parent is indexed, and the counts are right.
  absl::Status CheckInvariants() const;

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  static constexpr uint64_t kRootBit = uint64_t{1} << 63;  // marks a root's node id

  struct Record {
    PrefixKey key;
    PrefixKey parent_key;
    uint64_t node = 0;  // 0: not indexed
    uint64_t parent_node = 0;
    StepNumber valid_from;
    uint32_t previous = kNone;  // in the bucket; kNone: this is its head
    uint32_t next = kNone;
  };
  struct Root {
    uint64_t node = 0;
    uint32_t child_count = 0;  // indexed blocks right under it
  };

  PrefixKey RootKey(absl::string_view scope) const;
  PrefixKey ChildKey(const PrefixKey& parent, std::span<const TokenId> tokens) const;
  uint32_t BucketOf(const PrefixKey& key) const {
    return static_cast<uint32_t>(key.low & (heads_.size() - 1));
  }
  // The first block in its bucket with this parent and these tokens, or kNone.
  uint32_t FindChild(const PrefixKey& key, uint64_t parent_node,
                     std::span<const TokenId> tokens) const;
  uint32_t FindNode(const PrefixNode& node) const;

  uint32_t block_size_;
  uint64_t seed_;
  uint64_t high_mask_;
  uint64_t low_mask_;
  std::vector<uint32_t> heads_;  // [power of two >= capacity]: first block of each bucket
  std::vector<Record> records_;  // [capacity]
  std::vector<TokenId> tokens_;  // [capacity, block_size]
  absl::flat_hash_map<std::string, Root> roots_;              // by scope; only those with children
  absl::flat_hash_map<uint64_t, std::string> scope_of_root_;  // by root node
  uint64_t last_node_ = 0;
  uint32_t block_count_ = 0;
  uint32_t prefix_count_ = 0;
};

// 32 hex digits.
std::string PrefixKeyHex(const PrefixKey& key);

}  // namespace octavo
