#include "scheduler/core/stop_condition.h"

#include "gtest/gtest.h"

namespace octavo {
namespace {

TEST(StopConditionTest, TheLimitIsWhatWasAskedForOrWhatTheModelLeaves) {
  const StopRule asked = MakeStopRule({}, 0, 3, 5, 10);
  EXPECT_EQ(StopAfter(asked, 2, 7), std::nullopt);
  EXPECT_EQ(StopAfter(asked, 3, 7), (StopVerdict{FinishReason::kLength, std::nullopt}));
  const StopRule left = MakeStopRule({}, 0, std::nullopt, 8, 10);
  EXPECT_EQ(StopAfter(left, 1, 7), std::nullopt);
  EXPECT_EQ(StopAfter(left, 2, 7), (StopVerdict{FinishReason::kModelLength, std::nullopt}));
}

TEST(StopConditionTest, AStopTokenEndsWhateverTheOrderTheIdsCameIn) {
  const StopRule rule = MakeStopRule({42, 7, 19}, 0, 9, 1, 100);
  for (const TokenId token : {7, 19, 42}) {
    EXPECT_EQ(StopAfter(rule, 1, token), (StopVerdict{FinishReason::kStopToken, token}));
  }
  EXPECT_EQ(StopAfter(rule, 1, 8), std::nullopt);
}

TEST(StopConditionTest, AStopTokenCountsFromMinTokensOn) {
  const StopRule rule = MakeStopRule({42}, 3, 9, 1, 100);
  EXPECT_EQ(StopAfter(rule, 2, 42), std::nullopt);
  EXPECT_EQ(StopAfter(rule, 3, 42), (StopVerdict{FinishReason::kStopToken, 42}));
}

TEST(StopConditionTest, AStopTokenAtTheLimitIsToldBeforeTheLimit) {
  const StopRule rule = MakeStopRule({42}, 0, 2, 1, 100);
  EXPECT_EQ(StopAfter(rule, 2, 42), (StopVerdict{FinishReason::kStopToken, 42}));
}

}  // namespace
}  // namespace octavo
