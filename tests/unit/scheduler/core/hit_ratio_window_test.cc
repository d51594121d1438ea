#include "scheduler/core/hit_ratio_window.h"

#include <deque>
#include <random>

#include "gtest/gtest.h"

namespace octavo {
namespace {

// Scenario row 26: the last 5 requests.
TEST(HitRatioWindowTest, Row26TheOldestLeaveWhole) {
  HitRatioWindow window(5);
  EXPECT_EQ(window.ratio(), 0);
  window.Add(1, 20, 9);
  window.Add(4, 80, 16);
  EXPECT_EQ(window.ratio(), 0.25);
  window.Add(1, 10, 2);
  EXPECT_EQ(window.ratio(), 0.2);
}

TEST(HitRatioWindowTest, TheNewestStaysHoweverManyItStandsFor) {
  HitRatioWindow window(5);
  window.Add(1, 10, 10);
  window.Add(9, 40, 10);
  EXPECT_EQ(window.ratio(), 0.25);
}

TEST(HitRatioWindowTest, RequestsOneByOneAreTheLastOnes) {
  std::mt19937 random(1);
  HitRatioWindow window(100);
  std::deque<std::pair<uint64_t, uint64_t>> all;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t queried = 1 + random() % 50;
    const uint64_t hit = random() % (queried + 1);
    all.emplace_back(queried, hit);
    if (all.size() > 100) all.pop_front();
    window.Add(1, queried, hit);
    uint64_t queried_sum = 0, hit_sum = 0;
    for (const auto& [q, h] : all) {
      queried_sum += q;
      hit_sum += h;
    }
    ASSERT_EQ(window.ratio(), static_cast<double>(hit_sum) / static_cast<double>(queried_sum));
  }
}

}  // namespace
}  // namespace octavo
