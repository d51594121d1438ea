#pragma once

// What happens to the prefix index, as values from which an outsider rebuilds it: a block is stored
// (its content can be found), removed (it no longer can), or all of them are at once.
//
// What counts is what has been written: a block that was indexed while the step that fills it is in
// flight is stored when that step is done, and never was if the step fails. Recorded only while
// somebody listens; otherwise the index has no recorder and pays for one comparison.
//
// Thread-compatible: owned by the engine's loop.
// Invariants, of the events since a `cleared`: (1) A block is stored at most once before it is
// removed, and only then removed. (2) When a block is stored, its parent prefix has a stored block.

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"

namespace octavo {

// A prefix is a number here: equal numbers mean equal tokens from the start of a sequence, under
// one scope. Numbers are not used again within an epoch, and that of a prefix is above its
// parent's. Blocks with one number are twins: it does not matter which of them is used, and events
// do not tell which one is found.
struct BlockStored {
  BlockId block;
  uint64_t prefix = 0;          // that ends with the block
  uint64_t parent_prefix = 0;   // before it; 0: the block begins a sequence
  uint64_t scope_digest = 0;    // of a block that begins a sequence: ScopeDigest of its scope
  std::vector<TokenId> tokens;  // [1 to block_size]; fewer than block_size: a leaf

  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};

struct BlockRemoved {
  BlockId block;

  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};

enum class KvClearReason : uint8_t { kSnapshot, kReset, kReplicaLost };

// No block is stored any more. With kSnapshot the next `stored_count` events say which are.
struct BlocksCleared {
  KvClearReason reason = KvClearReason::kSnapshot;
  uint64_t stored_count = 0;

  friend bool operator==(const BlocksCleared&, const BlocksCleared&) = default;
};

struct KvEvent {
  Epoch epoch;  // of the replica; 0: there is none
  std::variant<BlockStored, BlockRemoved, BlocksCleared> change;

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

// Tells scopes apart without naming them: from 0, digest = mix(digest ^ byte) over the bytes and
// then over their number, with the mix of common/random.h; 0 for the empty scope. Not secret: a
// scope that can be guessed can be recognised.
uint64_t ScopeDigest(absl::string_view scope);

class KvEventRecorder {
 public:
  // Changes are of this epoch from now on, whose steps up to `completed` are done.
  void Begin(Epoch epoch, StepNumber completed);

  void OnStored(BlockStored stored, StepNumber valid_from);
  void OnRemoved(BlockId block);
  // All that was stored or waited to be is gone.
  void OnCleared(KvClearReason reason);
  // Steps up to `step` are done, and what failed of them was removed.
  void CompleteThrough(StepNumber step);

  Epoch epoch() const { return epoch_; }
  StepNumber completed() const { return completed_; }
  // What was recorded since the last call.
  std::vector<KvEvent> Take() { return std::exchange(events_, {}); }

 private:
  struct Ahead {
    BlockStored stored;
    StepNumber valid_from;
  };

  Epoch epoch_;
  StepNumber completed_;
  std::vector<Ahead> ahead_;                   // of steps in flight, in the order they were indexed
  absl::flat_hash_set<BlockId> ahead_blocks_;  // the same, so that an eviction searches nothing
  std::vector<KvEvent> events_;
};

}  // namespace octavo
