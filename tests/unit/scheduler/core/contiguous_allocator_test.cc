#include "scheduler/core/contiguous_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace octavo {
namespace {

class ContiguousAllocatorTest : public testing::TestWithParam<ContiguousAllocatorKind> {};

// Random allocations against a map of who holds each block: runs are inside, apart and long enough;
// a refusal means that no free run of the kind's shape was there; at the end all is one again.
TEST_P(ContiguousAllocatorTest, RunsNeverOverlapAndARefusalIsTrue) {
  std::mt19937 random(7);
  const bool is_buddy = GetParam() == ContiguousAllocatorKind::kBuddy;
  for (const uint32_t capacity : {1u, 2u, 7u, 64u, 118u, 1000u}) {
    const auto allocator = MakeContiguousAllocator(GetParam(), capacity);
    std::vector<bool> held(capacity, false);
    std::vector<BlockRun> runs;
    // The first place for `count` blocks; a buddy's runs lie at multiples of their length.
    const auto place = [&](uint32_t count) {
      const uint32_t step = is_buddy ? count : 1;
      for (uint32_t first = 0; first + count <= capacity; first += step) {
        uint32_t free = 0;
        while (free < count && !held[first + free]) ++free;
        if (free == count) return std::optional(first);
      }
      return std::optional<uint32_t>();
    };
    for (int i = 0; i < 3000; ++i) {
      if (random() % 2 == 0 && !runs.empty()) {
        std::swap(runs[random() % runs.size()], runs.back());
        allocator->Free(runs.back());
        std::fill_n(held.begin() + runs.back().first, runs.back().count, false);
        runs.pop_back();
      } else {
        const uint32_t asked = 1 + random() % std::min(capacity + 1, 40u);
        const uint32_t count = is_buddy ? std::bit_ceil(asked) : asked;
        const std::optional<BlockRun> run = allocator->Allocate(asked);
        ASSERT_EQ(run.has_value(), place(count).has_value()) << capacity << " " << asked;
        if (!run) continue;
        EXPECT_EQ(run->count, count);
        if (!is_buddy) {
          EXPECT_EQ(run->first, place(count));
        }
        for (uint32_t block = run->first; block < run->first + run->count; ++block) {
          ASSERT_LT(block, capacity);
          ASSERT_FALSE(held[block]);
          held[block] = true;
        }
        runs.push_back(*run);
      }
      ASSERT_EQ(allocator->free_blocks(),
                static_cast<uint32_t>(std::count(held.begin(), held.end(), false)));
    }
    for (const BlockRun& run : runs) allocator->Free(run);
    const uint32_t largest = is_buddy ? std::bit_floor(capacity) : capacity;
    EXPECT_EQ(allocator->Allocate(largest), (BlockRun{0, largest}));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ContiguousAllocatorTest,
                         testing::Values(ContiguousAllocatorKind::kBuddy,
                                         ContiguousAllocatorKind::kFirstFit),
                         [](const auto& info) { return ContiguousAllocatorKindName(info.param); });

}  // namespace
}  // namespace octavo
