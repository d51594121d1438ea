#include "common/inbox.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(InboxTest, GivesBackAllValuesInTheOrderTheyWerePushed) {
  Inbox<int> inbox(4);
  EXPECT_TRUE(inbox.TryPush(1));
  EXPECT_TRUE(inbox.Push(2));
  EXPECT_TRUE(inbox.TryPush(3));
  EXPECT_THAT(inbox.TakeAll(absl::InfinitePast()), ElementsAre(1, 2, 3));
  EXPECT_THAT(inbox.TakeAll(absl::InfinitePast()), IsEmpty());
}

TEST(InboxTest, RefusesWhenFullAndLeavesTheValueWithItsProducer) {
  Inbox<std::unique_ptr<int>> inbox(1);
  EXPECT_TRUE(inbox.TryPush(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(inbox.TryPush(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*second, 2);
}

TEST(InboxTest, TakesWhatMustArriveEvenWhenFullForOthers) {
  Inbox<int> inbox(1);
  EXPECT_TRUE(inbox.TryPush(1));
  EXPECT_FALSE(inbox.TryPush(2));
  EXPECT_TRUE(inbox.Push(3));
  EXPECT_THAT(inbox.TakeAll(absl::InfinitePast()), ElementsAre(1, 3));
  EXPECT_TRUE(inbox.TryPush(4));
}

TEST(InboxDeathTest, HoldsNoMoreThanTwiceItsCapacity) {
  Inbox<int> inbox(1);
  ASSERT_TRUE(inbox.Push(1));
  ASSERT_TRUE(inbox.Push(2));
  EXPECT_DEATH(inbox.Push(3), "more than its owner has outstanding");
}

TEST(InboxTest, AcceptsNothingAfterCloseButStillGivesWhatItHolds) {
  Inbox<int> inbox(4);
  EXPECT_TRUE(inbox.TryPush(1));
  inbox.Close();
  EXPECT_FALSE(inbox.TryPush(2));
  EXPECT_FALSE(inbox.Push(3));
  EXPECT_THAT(inbox.TakeAll(absl::InfiniteFuture()), ElementsAre(1));
  EXPECT_THAT(inbox.TakeAll(absl::InfiniteFuture()), IsEmpty());
}

TEST(InboxTest, WakesItsOwnerForAPushAndForClose) {
  Inbox<int> inbox(4);
  std::vector<int> seen;
  std::thread owner([&] {
    while (true) {
      const std::vector<int> taken = inbox.TakeAll(absl::InfiniteFuture());
      if (taken.empty()) return;
      seen.insert(seen.end(), taken.begin(), taken.end());
    }
  });
  EXPECT_TRUE(inbox.Push(7));
  inbox.Close();
  owner.join();
  EXPECT_THAT(seen, ElementsAre(7));
}

TEST(InboxTest, LosesAndReordersNothingOfManyProducers) {
  constexpr int kProducers = 4;
  constexpr int kEach = 5000;
  Inbox<std::pair<int, int>> inbox(64);
  std::vector<std::thread> producers;
  for (int producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&inbox, producer] {
      for (int i = 0; i < kEach;) {
        if (inbox.TryPush({producer, i})) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  for (int received = 0; received < kProducers * kEach;) {
    for (const auto& [producer, i] : inbox.TakeAll(absl::InfiniteFuture())) {
      ASSERT_EQ(i, next[producer]);
      ++next[producer];
      ++received;
    }
  }
  for (std::thread& thread : producers) thread.join();
  EXPECT_THAT(next, ElementsAre(kEach, kEach, kEach, kEach));
}

}  // namespace
}  // namespace octavo
