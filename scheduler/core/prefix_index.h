#pragma once

// Which block holds the KV of which prefix. A block enters when its content is known to be written:
// a full one, or a part-filled one that nobody will write any more. It is found by whoever has the
// same tokens before it, and in it or at its beginning, under the same scope.
//
// Idea. A full block's identity is (the prefix before it, its tokens). Prefixes are chained: the
// key of a block is a 128-bit hash of its parent's key and its own tokens, so a lookup walks down
// one block at a time and stops where nothing matches. The hash only *finds*: what confirms is the
// stored tokens and the parent's node. A node is a number given to a distinct prefix when its first
// block enters and never used again, so by induction an equal node means equal tokens from the
// start, whatever the hash did. The scope (prefix_scope.h) chooses the root under
// which the first block stands, and is compared as a string.
//
// Two sequences may have computed the same prefix: then several blocks share a node. The one that
// entered first is found, the next takes its place when it is evicted.
//
// Runs. Where no whole block goes on, a block may still begin like the tokens wanted. The blocks
// that follow a prefix, its children, are ordered by their tokens, as in a dictionary: whoever
// shares the longest run with a word stands right before or right after the word's own place, so
// one descent finds it among any number of children. A part-filled block is a *leaf*: it has no
// children and is found through this order alone. A leaf that another child begins with would never
// be found, so there is none: it does not enter, and leaves when a longer child comes.
//
// Layout. One 64-byte record, a count and block_size tokens per block, chained into a table of
// bucket heads by links inside the records; and 4 bytes (about 6 with the tree's slack) in the
// order of children, a B-tree of block ids: the one thing that is allocated after construction (but
// a scope's string).
//
// Thread-compatible: owned by the engine's loop.
// Invariants: (1) An indexed block's parent node is a root or the node of a full indexed block.
// (2) Node ids are never reused. (3) Of the children of a node, none begins with all tokens of
// another, twins apart.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "scheduler/core/kv_events.h"

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

// The first `token_count` tokens of a block; 0: none.
struct PrefixRun {
  BlockId block;
  uint32_t token_count = 0;

  friend bool operator==(const PrefixRun&, const PrefixRun&) = default;
};

class PrefixIndex {
 public:
  // `finds_runs` false: only whole blocks enter and are found, and children are not ordered. `seed`
  // keys the hashes, so that nobody outside can aim for one bucket. `key_bits` < 128 cuts them: for
  // tests of collisions.
  PrefixIndex(uint32_t capacity, uint32_t block_size, bool finds_runs, uint64_t seed,
              uint32_t key_bits = 128);
  PrefixIndex(PrefixIndex&&) = default;
  PrefixIndex& operator=(PrefixIndex&&) = default;

  // Appends the blocks of the longest indexed prefix of `tokens`, whole blocks only, and returns
  // its node.
  PrefixNode Find(std::span<const TokenId> tokens, absl::string_view scope,
                  std::vector<BlockId>& blocks) const;

  // What Find(tokens) gives now, for one who asked before: `blocks` is what it gave then for these
  // tokens, or for the first of them, and `node` what it returned. Costs one look at each of these
  // blocks while all are still found, and hashes only what follows them; otherwise a Find.
  PrefixNode FindAgain(std::span<const TokenId> tokens, absl::string_view scope,
                       const PrefixNode& node, std::vector<BlockId>& blocks) const;

  // Of the blocks right after the prefix `parent`, the one that shares the longest run of leading
  // tokens with `tokens`. Time grows with the logarithm of the number of indexed blocks.
  PrefixRun FindRun(const PrefixNode& parent, absl::string_view scope,
                    std::span<const TokenId> tokens) const;

  // Block `block` holds `tokens` after the prefix `parent`. REQUIRES: !Contains(block); `parent` is
  // the empty prefix or a full block's, indexed under the same scope; 1 to block_size tokens, and
  // if they are fewer (a leaf), finds_runs and no child of `parent` begins with all of them; `key`,
  // if given, is what KeysAfter gave for it.
  struct Entered {
    PrefixNode node;                 // of the prefix that ends with the block
    std::optional<BlockId> covered;  // a leaf that `tokens` begin with: it has left the index
  };
  Entered Insert(BlockId block, absl::string_view scope, const PrefixNode& parent,
                 std::span<const TokenId> tokens, StepNumber valid_from,
                 std::optional<PrefixKey> key = {});

  // The keys of the whole blocks of `tokens` after the prefix `parent`, for Insert.
  std::vector<PrefixKey> KeysAfter(const PrefixNode& parent, absl::string_view scope,
                                   std::span<const TokenId> tokens) const;
  // A large index does not fit into the processor's caches: these fetch what Insert will look at
  // for a key of KeysAfter, and Remove for two blocks, of which the nearer one was the further one
  // some blocks ago.
  void PrefetchInsertion(const PrefixKey& key) const;
  void PrefetchRemoval(BlockId near, BlockId far) const;

  // REQUIRES: Contains(block).
  void Remove(BlockId block);
  void Clear();

  // From now on changes are told to `recorder`, which is borrowed; null: to nobody.
  void RecordInto(KvEventRecorder* recorder) { recorder_ = recorder; }
  // Appends every indexed block, parents before children.
  void ListStored(std::vector<BlockStored>& stored) const;

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
  struct Child {
    uint64_t parent_node;
    std::span<const TokenId> tokens;
  };
  // By parent, then by tokens as in a dictionary. It looks into the arrays of the index, which stay
  // where they are when the index is moved.
  class ChildOrder {
   public:
    using is_transparent = void;
    explicit ChildOrder(const PrefixIndex& index)
        : records_(index.records_.data()),
          token_counts_(index.token_counts_.data()),
          tokens_(index.tokens_.data()),
          block_size_(index.block_size_) {}
    bool operator()(uint32_t a, uint32_t b) const { return Less(Of(a), Of(b)); }
    bool operator()(uint32_t a, const Child& b) const { return Less(Of(a), b); }
    bool operator()(const Child& a, uint32_t b) const { return Less(a, Of(b)); }

   private:
    static bool Less(const Child& a, const Child& b);
    Child Of(uint32_t block) const {
      return {records_[block].parent_node,
              {tokens_ + size_t{block} * block_size_, token_counts_[block]}};
    }

    const Record* records_;
    const uint16_t* token_counts_;
    const TokenId* tokens_;
    uint32_t block_size_;
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
  bool IsLeaf(uint32_t block) const { return token_counts_[block] < block_size_; }
  // Whether a and b have one parent and b begins with all tokens of a.
  bool Begins(uint32_t a, uint32_t b) const;
  void LinkIntoBucket(uint32_t block, uint32_t twin);
  // Another block of its prefix: the next to be found, if `block` is the one that is; kNone: there
  // is none.
  uint32_t TwinOf(uint32_t block) const;
  // Returns the leaf it covers, which is still there.
  std::optional<BlockId> InsertChild(uint32_t block);
  BlockStored DescribeStored(uint32_t block) const;
  absl::Status CheckBlock(uint32_t block) const;
  absl::Status CheckChildren() const;
  // Walks on from `node`, whose key and id are known, as long as blocks are found.
  PrefixNode Descend(PrefixNode node, std::span<const TokenId> tokens,
                     std::vector<BlockId>& blocks) const;
  // Of the blocks of this node, `block` is the one that is found.
  bool IsFound(BlockId block, uint64_t node) const;

  uint32_t block_size_;
  bool finds_runs_;
  uint64_t seed_;
  uint64_t high_mask_;
  uint64_t low_mask_;
  std::vector<uint32_t> heads_;         // [power of two >= capacity]: first block of each bucket
  std::vector<Record> records_;         // [capacity]
  std::vector<uint16_t> token_counts_;  // [capacity]; of an indexed block
  std::vector<TokenId> tokens_;         // [capacity, block_size]
  absl::btree_set<uint32_t, ChildOrder> children_;  // of all nodes; of twins the one found first
  absl::flat_hash_map<std::string, Root> roots_;    // by scope; only those with children
  absl::flat_hash_map<uint64_t, std::string> scope_of_root_;  // by root node
  uint64_t last_node_ = 0;
  uint32_t block_count_ = 0;
  uint32_t prefix_count_ = 0;
  KvEventRecorder* recorder_ = nullptr;
};

// 32 hex digits.
std::string PrefixKeyHex(const PrefixKey& key);

}  // namespace octavo
