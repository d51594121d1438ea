#pragma once

// Contiguous runs of blocks, as engines reserved them before paging: the baselines that paging is
// measured against. Two allocators behind one seam: the buddy system of Knuth (TAOCP 1, 2.5) that
// the PagedAttention paper gives Orca, and first fit over exact sizes.
//
// Thread-compatible: owned by the engine's loop.
// Invariants: runs handed out do not overlap; after every run is given back the allocator is as
// new.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo {

// Blocks first to first + count - 1.
struct BlockRun {
  uint32_t first = 0;
  uint32_t count = 0;

  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

class ContiguousAllocator {
 public:
  virtual ~ContiguousAllocator() = default;
  // A run of at least `count` >= 1 blocks, or nothing when no free run is long enough.
  virtual std::optional<BlockRun> Allocate(uint32_t count) = 0;
  // REQUIRES: `run` came from Allocate and was not given back since.
  virtual void Free(BlockRun run) = 0;
  virtual uint32_t free_blocks() const = 0;
  // The same state in a copy, for trying out.
  virtual std::unique_ptr<ContiguousAllocator> Clone() const = 0;
};

// Runs are powers of two at multiples of their length; two free halves join again. A capacity that
// is no power of two is a row of regions, the largest first.
class BuddyAllocator final : public ContiguousAllocator {
 public:
  explicit BuddyAllocator(uint32_t capacity);
  std::optional<BlockRun> Allocate(uint32_t count) override;
  void Free(BlockRun run) override;
  uint32_t free_blocks() const override { return free_; }
  std::unique_ptr<ContiguousAllocator> Clone() const override {
    return std::make_unique<BuddyAllocator>(*this);
  }

 private:
  uint32_t capacity_;
  uint32_t free_ = 0;
  std::vector<std::set<uint32_t>> starts_;  // [log2 of the length]: where free runs begin
};

// Runs of exactly the length asked for, at the lowest place that is long enough.
class FirstFitAllocator final : public ContiguousAllocator {
 public:
  explicit FirstFitAllocator(uint32_t capacity);
  std::optional<BlockRun> Allocate(uint32_t count) override;
  void Free(BlockRun run) override;
  uint32_t free_blocks() const override { return free_; }
  std::unique_ptr<ContiguousAllocator> Clone() const override {
    return std::make_unique<FirstFitAllocator>(*this);
  }

 private:
  uint32_t free_ = 0;
  std::map<uint32_t, uint32_t> gaps_;  // first block → length; no two touch
};

enum class ContiguousAllocatorKind : uint8_t { kBuddy, kFirstFit };

// "buddy", "first_fit".
const char* ContiguousAllocatorKindName(ContiguousAllocatorKind kind);
absl::StatusOr<ContiguousAllocatorKind> ParseContiguousAllocatorKind(const std::string& name);
std::unique_ptr<ContiguousAllocator> MakeContiguousAllocator(ContiguousAllocatorKind kind,
                                                             uint32_t capacity);

}  // namespace octavo
