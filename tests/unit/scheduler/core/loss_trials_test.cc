#include "scheduler/core/loss_trials.h"

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace octavo {
namespace {

LostRow Row(uint64_t request, uint32_t first = 0, uint32_t count = 8) {
  return {.step = StepNumber(1),
          .request_id = RequestId(request),
          .first_position = first,
          .token_count = count};
}

// Runs the group on trial until it is through, or `poison` kills it. Returns who was running.
std::vector<LostRow> Try(LossTrials& trials, std::optional<uint64_t> poison) {
  std::vector<LostRow> rows;
  for (const LossTrials::Suspect& suspect : trials.pending()) {
    rows.push_back(Row(suspect.request_id.value()));
  }
  const bool dies = std::any_of(rows.begin(), rows.end(), [&](const LostRow& row) {
    return row.request_id.value() == poison;
  });
  if (dies) return rows;
  for (const LostRow& row : rows) trials.Clear(row.request_id);
  return {};
}

TEST(LossTrialsTest, APoisonousRequestIsFoundInLogarithmicallyManyLosses) {
  std::mt19937_64 random(1);
  for (uint32_t count = 1; count <= 70; ++count) {
    const uint64_t poison = 1 + random() % count;
    std::vector<LostRow> rows;
    for (uint64_t id = 1; id <= count; ++id) rows.push_back(Row(id));
    LossTrials trials;
    std::optional<LostRow> guilty = trials.OnLoss(rows);
    uint32_t losses = 1;
    while (!guilty) {
      ASSERT_TRUE(trials.active());
      const std::vector<LostRow> lost = Try(trials, poison);
      if (lost.empty()) continue;
      ++losses;
      guilty = trials.OnLoss(lost);
    }
    EXPECT_EQ(guilty->request_id, RequestId(poison));
    EXPECT_LE(losses, 2 + std::bit_width(count - 1)) << count << " requests";
    EXPECT_FALSE(trials.active());
  }
}

TEST(LossTrialsTest, ChanceClearsEverybody) {
  for (uint64_t count = 1; count <= 40; ++count) {
    std::vector<LostRow> rows;
    for (uint64_t id = 1; id <= count; ++id) rows.push_back(Row(id));
    LossTrials trials;
    EXPECT_FALSE(trials.OnLoss(rows));
    for (int groups = 0; trials.active(); ++groups) {
      ASSERT_LT(groups, 2);
      EXPECT_TRUE(Try(trials, std::nullopt).empty());
    }
    EXPECT_TRUE(trials.Admits(RequestId(1)));
  }
}

TEST(LossTrialsTest, OnlyTheGroupOnTrialRunsAlsoWhenSomeOfItAreCleared) {
  LossTrials trials;
  trials.OnLoss(std::vector{Row(1), Row(2), Row(3), Row(4)});
  trials.Clear(RequestId(1));
  EXPECT_TRUE(trials.Admits(RequestId(1)));
  EXPECT_TRUE(trials.Admits(RequestId(2)));
  EXPECT_FALSE(trials.Admits(RequestId(3)));
  EXPECT_FALSE(trials.Admits(RequestId(5))) << "it came meanwhile";
  trials.Clear(RequestId(2));
  EXPECT_FALSE(trials.Admits(RequestId(2)));
  EXPECT_TRUE(trials.Admits(RequestId(4)));
}

TEST(LossTrialsTest, OtherRowsAreNoProof) {
  LossTrials trials;
  EXPECT_FALSE(trials.OnLoss(std::vector{Row(1, 0, 8)}));
  EXPECT_FALSE(trials.OnLoss(std::vector{Row(1, 8, 1)}));
  EXPECT_FALSE(trials.OnLoss(std::vector{Row(2, 8, 1)}));
  EXPECT_FALSE(trials.OnLoss(std::vector{Row(1, 8, 1)}));
  EXPECT_TRUE(trials.OnLoss(std::vector{Row(1, 8, 1)}));
}

TEST(LossTrialsTest, OfTwoStepsTheOlderIsTheOneThatCounts) {
  LostRow later = Row(1, 8, 1);
  later.step = StepNumber(2);
  LossTrials trials;
  EXPECT_FALSE(trials.OnLoss(std::vector{Row(1), later}));
  EXPECT_EQ(trials.pending()[0].end, 9u) << "cleared when both are done";
  EXPECT_TRUE(trials.OnLoss(std::vector{Row(1)}));
}

TEST(LossTrialsTest, ALossBetweenStepsCountsForNobody) {
  LossTrials trials;
  EXPECT_FALSE(trials.OnLoss({}));
  EXPECT_FALSE(trials.active());
  trials.OnLoss(std::vector{Row(1), Row(2)});
  EXPECT_FALSE(trials.OnLoss({}));
  EXPECT_FALSE(trials.Admits(RequestId(2))) << "the trial goes on";
}

}  // namespace
}  // namespace octavo
