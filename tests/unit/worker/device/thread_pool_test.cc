#include "worker/device/thread_pool.h"

#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fp_env.h"

namespace octavo {
namespace {

struct PoolShape {
  uint32_t threads;
  uint32_t cores;  // fewer than threads: no spinning
};

class ThreadPoolTest : public testing::TestWithParam<PoolShape> {
 protected:
  ThreadPool pool_{GetParam().threads, GetParam().cores};
};

TEST_P(ThreadPoolTest, EveryItemRunsExactlyOnce) {
  for (int64_t items : {1, 2, 3, 7, 64, 1000, 4097}) {
    std::vector<std::atomic<int>> runs(items);
    auto* counts = runs.data();
    pool_.Run(items, [counts](int64_t begin, int64_t end, uint32_t) {
      for (int64_t i = begin; i < end; ++i) counts[i].fetch_add(1);
    });
    for (int64_t i = 0; i < items; ++i)
      ASSERT_EQ(runs[i].load(), 1) << "item " << i << " of " << items;
  }
}

TEST_P(ThreadPoolTest, ACommandSeesEverythingTheOneBeforeWrote) {
  // Each command adds up what the last one wrote, with item counts that leave threads idle or busy
  // in turn.
  constexpr int kCommands = 200;
  std::vector<int64_t> values(997, 1);
  std::vector<int64_t> sums(kCommands, 0);
  CommandList list;
  for (int c = 0; c < kCommands; ++c) {
    int64_t* data = values.data();
    list.Add(997, [data](int64_t begin, int64_t end, uint32_t) {
      for (int64_t i = begin; i < end; ++i) data[i] += i;
    });
    int64_t* sum = &sums[c];
    list.Add(1, [data, sum](int64_t, int64_t, uint32_t) {
      *sum = std::accumulate(data, data + 997, int64_t{0});
    });
  }
  pool_.Submit(list);
  ThreadPool::WaitFinished(list);
  for (int c = 0; c < kCommands; ++c) EXPECT_EQ(sums[c], 997 + (c + 1) * (997 * 996 / 2));
  ThreadPool::WaitReleased(list);
}

TEST_P(ThreadPoolTest, ListsRunInTheOrderOfSubmission) {
  std::vector<int> order;
  std::vector<std::unique_ptr<CommandList>> lists;
  for (int i = 0; i < static_cast<int>(kMaxQueuedLists); ++i) {
    auto* log = &order;
    lists.push_back(std::make_unique<CommandList>());
    lists.back()->Add(1, [log, i](int64_t, int64_t, uint32_t) { log->push_back(i); });
  }
  for (auto& list : lists) pool_.Submit(*list);
  for (auto& list : lists) ThreadPool::WaitReleased(*list);
  std::vector<int> expected(kMaxQueuedLists);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST_P(ThreadPoolTest, AListIsRecordedAndRunAgainManyTimes) {
  CommandList list;
  std::atomic<int64_t> total{0};
  for (int round = 0; round < 2000; ++round) {
    ThreadPool::WaitReleased(list);
    list.Clear();
    auto* sum = &total;
    for (int c = 0; c < 3; ++c) {
      list.Add(round % 5,
               [sum](int64_t begin, int64_t end, uint32_t) { sum->fetch_add(end - begin); });
    }
    pool_.Submit(list);
  }
  ThreadPool::WaitReleased(list);
  EXPECT_EQ(total.load(), 3 * 400 * (0 + 1 + 2 + 3 + 4));
}

TEST_P(ThreadPoolTest, AnEmptyListIsFinishedAtOnce) {
  CommandList list;
  ThreadPool::WaitFinished(list);
  pool_.Submit(list);
  ThreadPool::WaitFinished(list);
  ThreadPool::WaitReleased(list);
  EXPECT_EQ(list.size(), 0u);
}

TEST_P(ThreadPoolTest, ItemsRunWithDenormalsFlushedOnThreadsBelowTheCount) {
  std::atomic<int> wrong{0};
  auto* count = &wrong;
  pool_.Run(256, [count, threads = pool_.thread_count()](int64_t, int64_t, uint32_t thread) {
    if (thread >= threads || !kernels::FlushDenormals::IsActive()) count->fetch_add(1);
  });
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ThreadPoolTest,
                         testing::Values(PoolShape{1, 1}, PoolShape{2, 2}, PoolShape{2, 1},
                                         PoolShape{5, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.threads) + "ThreadsOn" +
                                  std::to_string(info.param.cores);
                         });

TEST(ArenaTest, ValuesAreAlignedAndDoNotOverlap) {
  struct alignas(64) Wide {
    int64_t value[9];
  };
  Arena arena;
  for (int round = 0; round < 3; ++round) {
    std::vector<Wide*> wides;
    std::vector<char*> bytes;
    for (int i = 0; i < 2000; ++i) {
      bytes.push_back(arena.New(static_cast<char>(i)));
      wides.push_back(arena.New(Wide{.value = {i, i, i, i, i, i, i, i, i}}));
    }
    for (int i = 0; i < 2000; ++i) {
      ASSERT_EQ(reinterpret_cast<uintptr_t>(wides[i]) % 64, 0u);
      ASSERT_EQ(*bytes[i], static_cast<char>(i));
      for (int64_t value : wides[i]->value) ASSERT_EQ(value, i);
    }
    arena.Reset();
  }
}

}  // namespace
}  // namespace octavo
