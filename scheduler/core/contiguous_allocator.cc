#include "scheduler/core/contiguous_allocator.h"

#include <bit>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace octavo {
namespace {

// The smallest k with 2^k >= count.
uint32_t CeilLog2(uint32_t count) { return static_cast<uint32_t>(std::bit_width(count - 1)); }

}  // namespace

BuddyAllocator::BuddyAllocator(uint32_t capacity)
    : capacity_(capacity), starts_(std::bit_width(capacity)) {
  uint32_t start = 0;
  for (uint32_t order = static_cast<uint32_t>(starts_.size()); order-- > 0;) {
    if ((capacity >> order & 1) == 0) continue;
    starts_[order].insert(start);
    start += 1u << order;
  }
  free_ = capacity;
}

std::optional<BlockRun> BuddyAllocator::Allocate(uint32_t count) {
  CHECK_GE(count, 1u);
  if (count > capacity_) return std::nullopt;
  const uint32_t wanted = CeilLog2(count);
  uint32_t order = wanted;
  while (order < starts_.size() && starts_[order].empty()) ++order;
  if (order >= starts_.size()) return std::nullopt;
  const uint32_t first = *starts_[order].begin();
  starts_[order].erase(starts_[order].begin());
  while (order > wanted) {  // the upper half stays free
    --order;
    starts_[order].insert(first + (1u << order));
  }
  free_ -= 1u << wanted;
  return BlockRun{first, 1u << wanted};
}

void BuddyAllocator::Free(BlockRun run) {
  free_ += run.count;
  uint32_t order = CeilLog2(run.count);
  uint32_t first = run.first;
  // A region's length is a power of two at a multiple of it, so a buddy outside the region is never
  // in the set: it would be longer than what lies there.
  while (order + 1 < starts_.size()) {
    const auto buddy = starts_[order].find(first ^ (1u << order));
    if (buddy == starts_[order].end()) break;
    first &= ~(1u << order);
    starts_[order].erase(buddy);
    ++order;
  }
  CHECK(starts_[order].insert(first).second) << "block " << run.first << " is given back twice";
}

FirstFitAllocator::FirstFitAllocator(uint32_t capacity) : free_(capacity) {
  if (capacity > 0) gaps_.emplace(0, capacity);
}

std::optional<BlockRun> FirstFitAllocator::Allocate(uint32_t count) {
  CHECK_GE(count, 1u);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < count) continue;
    const BlockRun run{gap->first, count};
    if (gap->second > count) gaps_.emplace_hint(gap, run.first + count, gap->second - count);
    gaps_.erase(gap);
    free_ -= count;
    return run;
  }
  return std::nullopt;
}

void FirstFitAllocator::Free(BlockRun run) {
  free_ += run.count;
  auto next = gaps_.lower_bound(run.first);
  CHECK(next == gaps_.end() || next->first >= run.first + run.count)
      << "block " << run.first << " is given back twice";
  if (next != gaps_.end() && next->first == run.first + run.count) {
    run.count += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto previous = std::prev(next);
    CHECK_LE(previous->first + previous->second, run.first)
        << "block " << run.first << " is given back twice";
    if (previous->first + previous->second == run.first) {
      previous->second += run.count;
      return;
    }
  }
  gaps_.emplace_hint(next, run.first, run.count);
}

const char* ContiguousAllocatorKindName(ContiguousAllocatorKind kind) {
  return kind == ContiguousAllocatorKind::kBuddy ? "buddy" : "first_fit";
}

absl::StatusOr<ContiguousAllocatorKind> ParseContiguousAllocatorKind(const std::string& name) {
  for (const auto kind : {ContiguousAllocatorKind::kBuddy, ContiguousAllocatorKind::kFirstFit}) {
    if (name == ContiguousAllocatorKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--contiguous_allocator=", name, ": it must be buddy or first_fit"));
}

std::unique_ptr<ContiguousAllocator> MakeContiguousAllocator(ContiguousAllocatorKind kind,
                                                             uint32_t capacity) {
  if (kind == ContiguousAllocatorKind::kBuddy) return std::make_unique<BuddyAllocator>(capacity);
  return std::make_unique<FirstFitAllocator>(capacity);
}

}  // namespace octavo
