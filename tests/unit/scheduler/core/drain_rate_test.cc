#include "scheduler/core/drain_rate.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "gtest/gtest.h"
#include "scheduler/core/engine.h"

namespace octavo {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

absl::Duration Clamped(absl::Duration time) {
  return std::clamp(time, DrainRate::kShortest, DrainRate::kLongest);
}

// Ends `count` requests of 10 prompt tokens, `apart` from each other; returns the time of the last.
absl::Time EndSteadily(DrainRate& rate, absl::Time from, int count, absl::Duration apart) {
  for (int i = 0; i < count; ++i) rate.OnRequestEnded(from += apart, 10);
  return from;
}

// Every end since the last restart, and the definition counted out.
struct NaiveRate {
  absl::Time since = absl::InfinitePast();
  std::vector<std::pair<absl::Time, uint64_t>> ends;

  absl::Duration Time(bool tokens, uint64_t count, absl::Time now) const {
    absl::Time from = std::max(since, now - DrainRate::kWindow);
    const size_t oldest = ends.size() - std::min(ends.size(), DrainRate::kMaxEnds);
    if (oldest > 0) from = std::max(from, ends[oldest - 1].first);
    double measured = 0;
    for (size_t i = oldest; i < ends.size(); ++i) {
      if (ends[i].first >= now - DrainRate::kWindow) measured += tokens ? ends[i].second : 1;
    }
    const absl::Duration span = std::max(now - from, DrainRate::kMinSpan);
    return Clamped(measured == 0 ? span : span * (count / measured));
  }
};

TEST(DrainRateTest, IsTheDefinitionCountedOutOverRandomHistories) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    DrainRate rate;
    NaiveRate naive;
    absl::Time now = kStart;
    for (int i = 0; i < 4000; ++i) {
      // Bursts at one moment, steady work, and now and then a stall.
      const uint64_t pace = random() % 1000;
      now += absl::Milliseconds(pace < 300 ? 0 : pace < 995 ? pace % 20 : 1000 * (pace - 990));
      if (random() % 700 == 0) {
        rate.Restart(now);
        naive = {.since = now};
      } else {
        const uint64_t tokens = random() % 5000;
        rate.OnRequestEnded(now, tokens);
        naive.ends.emplace_back(now, tokens);
      }
      const absl::Time asked = now + absl::Milliseconds(random() % 4 == 0 ? random() % 40'000 : 0);
      const uint64_t count = 1 + random() % 200;
      ASSERT_EQ(rate.TimeForRequests(count, asked), naive.Time(false, count, asked)) << i;
      ASSERT_EQ(rate.TimeForTokens(500 * count, asked), naive.Time(true, 500 * count, asked)) << i;
    }
  }
}

// Ends at random moments, r a second: what is told lies within 1 + 5/sqrt(n) of the truth, where n
// is the ends expected in the window (five standard deviations of their number).
TEST(DrainRateTest, ConvergesToTheRateOfPoissonEnds) {
  for (const double ends_a_second : {0.5, 2.0, 10.0, 30.0, 300.0}) {
    const double expected_ends = std::min<double>(
        DrainRate::kMaxEnds, ends_a_second * absl::ToDoubleSeconds(DrainRate::kWindow));
    const double factor = 1 + 5 / std::sqrt(expected_ends);
    const auto count = static_cast<uint64_t>(std::ceil(ends_a_second * 5));
    const absl::Duration truth = absl::Seconds(count / ends_a_second);
    absl::Duration sum;
    constexpr int kSeeds = 40;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      std::mt19937_64 random(seed);
      std::exponential_distribution<double> gap(ends_a_second);
      DrainRate rate;
      rate.Restart(kStart);
      absl::Time now = kStart;
      while (now < kStart + 2 * DrainRate::kWindow) {
        rate.OnRequestEnded(now += absl::Seconds(gap(random)), 7);
      }
      for (const absl::Duration told :
           {rate.TimeForRequests(count, now), rate.TimeForTokens(7 * count, now)}) {
        EXPECT_GE(told, truth / factor) << ends_a_second << " a second, seed " << seed;
        EXPECT_LE(told, truth * factor) << ends_a_second << " a second, seed " << seed;
      }
      sum += rate.TimeForRequests(count, now);
    }
    EXPECT_NEAR(absl::FDivDuration(sum / kSeeds, truth), 1.0, 0.15) << ends_a_second;
  }
}

TEST(DrainRateTest, WithoutAnEndItIsTheTimeWithoutOne) {
  DrainRate rate;
  rate.Restart(kStart);
  EXPECT_EQ(rate.TimeForRequests(1, kStart), DrainRate::kMinSpan);
  EXPECT_EQ(rate.TimeForTokens(1000, kStart), DrainRate::kMinSpan);
  EXPECT_EQ(rate.TimeForRequests(1, kStart + absl::Seconds(12)), absl::Seconds(12));
  EXPECT_EQ(rate.TimeForRequests(1, kStart + absl::Hours(1)), DrainRate::kWindow);
  EXPECT_EQ(DrainRate().TimeForRequests(1, kStart), DrainRate::kWindow) << "never started";
}

TEST(DrainRateTest, WhatEndedBeforeARestartDoesNotCount) {
  DrainRate rate;
  rate.Restart(kStart);
  absl::Time now = EndSteadily(rate, kStart, 10, absl::Seconds(3));
  rate.Restart(now);
  EXPECT_EQ(rate.TimeForRequests(1, now), DrainRate::kMinSpan);
  // Ten a second from here, not one in three seconds.
  now = EndSteadily(rate, now, 50, absl::Milliseconds(100));
  EXPECT_EQ(rate.TimeForRequests(20, now), absl::Seconds(2));
  EXPECT_EQ(rate.TimeForTokens(200, now), absl::Seconds(2));
}

TEST(DrainRateTest, AStallMakesTheTimeGrowToTheLongestAndNoFurther) {
  DrainRate rate;
  rate.Restart(kStart);
  absl::Time now = EndSteadily(rate, kStart, 100, absl::Milliseconds(100));
  absl::Duration before = rate.TimeForRequests(10, now);
  for (int second = 0; second < 25; ++second) {
    now += absl::Seconds(1);
    const absl::Duration time = rate.TimeForRequests(10, now);
    EXPECT_GT(time, before);
    before = time;
  }
  rate.Restart(now);
  now = EndSteadily(rate, now, 1, absl::Seconds(30));
  EXPECT_EQ(rate.TimeForRequests(10, now), DrainRate::kLongest);
}

TEST(DrainRateTest, TheFirstEndsOfABurstAreNoRateAndNothingIsBelowTheShortest) {
  DrainRate rate;
  rate.Restart(kStart);
  for (int i = 0; i < 4; ++i) rate.OnRequestEnded(kStart, 10);
  EXPECT_EQ(rate.TimeForRequests(4, kStart), DrainRate::kMinSpan);
  EXPECT_EQ(rate.TimeForRequests(1, kStart + absl::Milliseconds(1)), DrainRate::kMinSpan / 4);
  const absl::Time now = EndSteadily(rate, kStart, 3000, absl::Milliseconds(1));
  EXPECT_EQ(rate.TimeForRequests(1, now), DrainRate::kShortest);
  EXPECT_EQ(rate.TimeForTokens(1, now), DrainRate::kShortest);
}

// The engine as it is asked: a full queue, requests that end at a known rate.
class FullQueueTest : public testing::Test {
 protected:
  void Start(uint64_t max_waiting_tokens) {
    engine_.emplace(EngineOptions{.context_length = 100,
                                  .max_waiting_requests = 40,
                                  .max_waiting_tokens = max_waiting_tokens});
  }
  RequestId Submit(size_t prompt_tokens) {
    const RequestId id(++last_request_);
    engine_->Handle(
        SubmitRequest{.request_id = id, .prompt = std::vector<TokenId>(prompt_tokens, 1)}, now_,
        actions_);
    return id;
  }
  // The status of the refusal that Submit(prompt_tokens) must be.
  absl::Status Refused(size_t prompt_tokens) {
    actions_.clear();
    Submit(prompt_tokens);
    EXPECT_EQ(actions_.size(), 1u);
    const auto* refused = std::get_if<RequestRefused>(&actions_.at(0));
    EXPECT_NE(refused, nullptr);
    return refused == nullptr ? absl::OkStatus() : refused->status;
  }
  // `count` waiting requests go, `apart` from each other; others take their places.
  void Turn(int count, absl::Duration apart, size_t prompt_tokens) {
    std::vector<RequestId> waiting;
    for (int i = 0; i < count; ++i) waiting.push_back(Submit(prompt_tokens));
    for (const RequestId id : waiting) {
      now_ += apart;
      engine_->Handle(CancelRequest{.request_id = id}, now_, actions_);
      Submit(prompt_tokens);
    }
  }

  std::optional<Engine> engine_;
  absl::Time now_ = kStart;
  std::vector<Action> actions_;
  uint64_t last_request_ = 0;
};

TEST_F(FullQueueTest, ARefusalSaysWhenATenthOfTheQueueWillBeFree) {
  Start(10'000);
  Turn(40, absl::Milliseconds(500), 10);
  absl::Status status = Refused(10);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelay(status), absl::Seconds(2)) << "4 of 40 places, 2 a second";
  EXPECT_EQ(TakeReason(status),
            (StatusReason{"QUEUE_FULL", {{"waiting_requests", "40"}, {"limit", "40"}}}));
}

TEST_F(FullQueueTest, ARefusalForTokensGoesByTokens) {
  Start(400);
  Turn(20, absl::Seconds(1), 20);                                       // 20 tokens a second
  for (const auto& [tokens, delay] : {std::pair{10, absl::Seconds(2)},  // a tenth, 40 tokens
                                      std::pair{80, absl::Seconds(4)}}) {
    absl::Status status = Refused(tokens);
    EXPECT_EQ(RetryDelay(status), delay);
    EXPECT_EQ(TakeReason(status), (StatusReason{"QUEUE_FULL",
                                                {{"waiting_tokens", "400"},
                                                 {"prompt_tokens", absl::StrCat(tokens)},
                                                 {"limit", "400"}}}));
  }
}

TEST_F(FullQueueTest, ARefusalForTheRequestItselfCarriesNoDelay) {
  Start(10'000);
  EXPECT_EQ(RetryDelay(Refused(0)), absl::ZeroDuration());
  EXPECT_EQ(RetryDelay(Refused(100)), absl::ZeroDuration());
}

TEST_F(FullQueueTest, ALostReplicasRequestsAreNoWorkDone) {
  Start(10'000);
  const KvLayout layout{.block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  engine_->Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, 100}}}, now_, actions_);
  for (int i = 0; i < 30; ++i) Submit(4);
  EXPECT_TRUE(engine_->PlanNext(now_, actions_));  // 30 run
  for (int i = 0; i < 40; ++i) Submit(4);
  now_ += absl::Seconds(2);
  engine_->Handle(ReplicaLost{ReplicaId(0), Epoch(1), absl::UnavailableError("gone")}, now_,
                  actions_);
  now_ += absl::Seconds(3);
  EXPECT_EQ(RetryDelay(Refused(4)), absl::Seconds(3)) << "nothing has ended since";
}

}  // namespace
}  // namespace octavo
