#include "scheduler/core/block_pool.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using testing::ElementsAre;

std::vector<uint32_t> Order(const FreeQueue& queue) {
  std::vector<uint32_t> order;
  for (BlockId it = queue.Front(); it != queue.end(); it = queue.Next(it)) {
    order.push_back(it.value());
  }
  return order;
}

std::vector<BlockId> Blocks(std::initializer_list<uint32_t> ids) {
  std::vector<BlockId> blocks;
  for (const uint32_t id : ids) blocks.push_back(BlockId(id));
  return blocks;
}

// Scenario row 20.
TEST(FreeQueueTest, BlocksLeaveFromTheMiddleAndComeBackAtTheTail) {
  FreeQueue queue(5);
  for (uint32_t i = 0; i < 5; ++i) queue.PushBack(BlockId(i));
  EXPECT_EQ(queue.PopFront(), BlockId(0));
  queue.Remove(BlockId(2));
  queue.PushBack(BlockId(2));
  EXPECT_THAT(Order(queue), ElementsAre(1, 3, 4, 2));
  EXPECT_EQ(queue.size(), 4u);
}

TEST(FreeQueueDeathTest, PoppingAnEmptyQueueDies) {
  FreeQueue queue(1);
  EXPECT_DEATH(queue.PopFront(), "the free queue is empty");
  EXPECT_DEATH(queue.Remove(BlockId(0)), "is not in the free queue");
}

// Scenario row 20: [4,5], then [1,2], given up before [0] pop as 1,2,4,5,0.
TEST(BlockPoolTest, GroupsWithoutPrefixGoToTheHeadInTheirOrder) {
  BlockPool pool(6);
  for (int i = 0; i < 6; ++i) pool.Take();
  pool.Release(Blocks({0}));
  pool.Release(Blocks({4, 5}));
  pool.Release(Blocks({1, 2}));
  EXPECT_THAT(Order(pool.queue()), ElementsAre(1, 2, 4, 5, 0));
}

TEST(BlockPoolTest, BlocksWithAPrefixGoToTheTailAndTheOthersToTheHead) {
  BlockPool pool(5);
  for (int i = 0; i < 4; ++i) pool.Take();
  pool.MarkPrefix(BlockId(0));
  pool.MarkPrefix(BlockId(1));
  pool.Release(Blocks({3, 2, 1, 0}));
  EXPECT_THAT(Order(pool.queue()), ElementsAre(3, 2, 4, 1, 0));
  EXPECT_EQ(pool.free_count(), 3u);
  EXPECT_EQ(pool.cached_count(), 2u);
  EXPECT_EQ(pool.held_count(), 0u);
}

TEST(BlockPoolTest, ACachedBlockIsEvictedOnlyWhenItIsTaken) {
  BlockPool pool(2);
  EXPECT_FALSE(pool.Take().evicted);
  pool.MarkPrefix(BlockId(0));
  pool.Release(Blocks({0}));
  EXPECT_EQ(pool.state(BlockId(0)), BlockState::kCached);
  EXPECT_EQ(pool.Take().block, BlockId(1));
  EXPECT_EQ(pool.state(BlockId(0)), BlockState::kCached);
  const BlockPool::Taken taken = pool.Take();
  EXPECT_EQ(taken.block, BlockId(0));
  EXPECT_TRUE(taken.evicted);
  EXPECT_FALSE(pool.has_prefix(BlockId(0)));
}

TEST(BlockPoolTest, ABlockWhoseContentLeftTheIndexIsTakenNext) {
  BlockPool pool(4);
  for (int i = 0; i < 3; ++i) {
    pool.Take();
    pool.MarkPrefix(BlockId(static_cast<uint32_t>(i)));
  }
  pool.Release(Blocks({0, 1}));
  pool.ClearPrefix(BlockId(1));
  pool.ClearPrefix(BlockId(2));
  EXPECT_THAT(Order(pool.queue()), ElementsAre(1, 3, 0));
  EXPECT_EQ(pool.state(BlockId(1)), BlockState::kFree);
  EXPECT_EQ(pool.state(BlockId(2)), BlockState::kHeld);
  EXPECT_EQ(pool.free_count(), 2u);
  EXPECT_FALSE(pool.Take().evicted);
  pool.Release(Blocks({2}));
  EXPECT_THAT(Order(pool.queue()), ElementsAre(2, 3, 0));
}

TEST(BlockPoolDeathTest, ReferencesAreCountedExactly) {
  BlockPool pool(2);
  pool.Take();
  pool.Release(Blocks({0}));
  EXPECT_DEATH(pool.Release(Blocks({0})), "released more often than it was taken");
  EXPECT_DEATH(pool.AddReference(BlockId(0)), "there is nothing in it to share");
}

// The pool again, in the plainest way: a list of ids, searched from the front.
struct NaivePool {
  std::vector<uint32_t> references;
  std::vector<bool> prefix;
  std::deque<uint32_t> queue;

  explicit NaivePool(uint32_t capacity) : references(capacity), prefix(capacity) {
    for (uint32_t i = 0; i < capacity; ++i) queue.push_back(i);
  }
  uint32_t Take() {
    const uint32_t block = queue.front();
    queue.pop_front();
    references[block] = 1;
    prefix[block] = false;
    return block;
  }
  void AddReference(uint32_t block) {
    if (references[block]++ == 0) queue.erase(std::find(queue.begin(), queue.end(), block));
  }
  void ClearPrefix(uint32_t block) {
    prefix[block] = false;
    if (references[block] > 0) return;
    queue.erase(std::find(queue.begin(), queue.end(), block));
    queue.push_front(block);
  }
  void Release(const std::vector<BlockId>& blocks) {
    std::vector<uint32_t> head;
    for (const BlockId block : blocks) {
      if (--references[block.value()] > 0) continue;
      if (prefix[block.value()]) {
        queue.push_back(block.value());
      } else {
        head.push_back(block.value());
      }
    }
    queue.insert(queue.begin(), head.begin(), head.end());
  }
};

TEST(BlockPoolTest, RandomOperationsAgreeWithAListSearchedFromTheFront) {
  std::mt19937_64 random(20260817);
  for (const uint32_t capacity : {1u, 8u, 23u, 64u}) {
    BlockPool pool(capacity);
    NaivePool naive(capacity);
    std::vector<std::vector<BlockId>> tables;  // who holds what, each block counted once a table
    for (int step = 0; step < 60000; ++step) {
      const uint64_t kind = random() % 9;
      if (kind < 3 && pool.available_count() > 0) {
        if (tables.empty() || random() % 3 == 0) tables.emplace_back();
        auto& table = tables[random() % tables.size()];
        const bool was_cached = naive.prefix[naive.queue.front()];
        const BlockPool::Taken taken = pool.Take();
        ASSERT_EQ(taken.block.value(), naive.Take());
        ASSERT_EQ(taken.evicted, was_cached);
        table.push_back(taken.block);
      } else if (kind == 3) {
        const BlockId block(static_cast<uint32_t>(random() % capacity));
        if (pool.state(block) == BlockState::kFree) continue;
        pool.AddReference(block);
        naive.AddReference(block.value());
        tables.push_back({block});
      } else if (kind == 4 || kind == 5) {
        const BlockId block(static_cast<uint32_t>(random() % capacity));
        if (pool.state(block) != BlockState::kHeld) continue;
        pool.MarkPrefix(block);
        naive.prefix[block.value()] = true;
      } else if (kind == 6) {
        const BlockId block(static_cast<uint32_t>(random() % capacity));
        if (!pool.has_prefix(block)) continue;
        pool.ClearPrefix(block);
        naive.ClearPrefix(block.value());
      } else if (!tables.empty()) {
        std::swap(tables[random() % tables.size()], tables.back());
        std::reverse(tables.back().begin(), tables.back().end());
        pool.Release(tables.back());
        naive.Release(tables.back());
        tables.pop_back();
      } else if (random() % 16 == 0) {
        pool.ClearPrefixes();
        std::fill(naive.prefix.begin(), naive.prefix.end(), false);
      }
      ASSERT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
      ASSERT_THAT(Order(pool.queue()), testing::ElementsAreArray(naive.queue));
      ASSERT_EQ(pool.free_count() + pool.cached_count() + pool.held_count(), capacity);
      for (uint32_t i = 0; i < capacity; ++i) {
        ASSERT_EQ(pool.reference_count(BlockId(i)), naive.references[i]);
      }
    }
  }
}

}  // namespace
}  // namespace octavo
