// The rule of beam search: by hand where one clause decides, and beside a plain search over whole
// vocabularies at random, with many ties.

#include "scheduler/core/beam_search.h"

#include <algorithm>
#include <random>
#include <vector>

#include "common/random.h"
#include "common/sampling_params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/plain_beam_search.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TokenId kStop = 9;
using Alternatives = std::vector<std::vector<TokenLogprob>>;

StopRule Rule(uint32_t max_tokens, std::vector<TokenId> stops = {kStop}) {
  return {.stop_token_ids = std::move(stops), .max_tokens = max_tokens};
}

std::vector<std::vector<TokenId>> TokensOf(const std::vector<BeamHypothesis>& hypotheses) {
  std::vector<std::vector<TokenId>> tokens;
  for (const BeamHypothesis& it : hypotheses) tokens.push_back(it.tokens);
  return tokens;
}

TEST(BeamSearchTest, TheBestContinuationsOfAllBeamsGoOn) {
  BeamSearch search({.width = 2, .returned = 2}, Rule(2));
  EXPECT_THAT(search.Advance(Alternatives{{{1, -1}, {2, -2}, {3, -3}}}),
              ElementsAre(BeamContinuation{0, 1}, BeamContinuation{0, 2}));
  EXPECT_EQ(search.beam_count(), 2u);
  EXPECT_EQ(search.token_count(), 1u);
  // The worse beam's first one is better than the better one's second.
  EXPECT_THAT(
      search.Advance(Alternatives{{{4, -2}, {5, -4}, {6, -5}}, {{4, -0.5}, {5, -3}, {6, -9}}}),
      IsEmpty());
  EXPECT_TRUE(search.done());
  EXPECT_THAT(TokensOf(search.Best()), ElementsAre(ElementsAre(2, 4), ElementsAre(1, 4)));
  EXPECT_EQ(search.Best()[0].score, -2.5 / 2);
  EXPECT_EQ(search.Best()[0].stop_token, std::nullopt);
}

TEST(BeamSearchTest, EqualSumsAreOrderedByParentThenByToken) {
  BeamSearch search({.width = 3}, Rule(9, {}));
  EXPECT_THAT(search.Advance(Alternatives{{{5, -1}, {7, -1}, {8, -1}}}),
              ElementsAre(BeamContinuation{0, 5}, BeamContinuation{0, 7}, BeamContinuation{0, 8}));
  EXPECT_THAT(
      search.Advance(Alternatives{
          {{6, -2}, {1, -3}, {2, -3}}, {{0, -2}, {4, -2}, {3, -3}}, {{0, -2}, {1, -2}, {2, -2}}}),
      ElementsAre(BeamContinuation{0, 6}, BeamContinuation{1, 0}, BeamContinuation{1, 4}));
}

TEST(BeamSearchTest, AStopTokenEndsItsBeamIfItIsAmongTheFirst) {
  BeamSearch search({.width = 2, .returned = 2}, Rule(3));
  // Of rank 1: a hypothesis. The beams are the first two others.
  EXPECT_THAT(search.Advance(Alternatives{{{1, -1}, {kStop, -2}, {3, -3}}}),
              ElementsAre(BeamContinuation{0, 1}, BeamContinuation{0, 3}));
  // Of rank 2: dropped, though nothing else has ended.
  EXPECT_THAT(
      search.Advance(Alternatives{{{1, -1}, {2, -1}, {kStop, -1.5}}, {{1, -8}, {2, -8}, {3, -8}}}),
      ElementsAre(BeamContinuation{0, 1}, BeamContinuation{0, 2}));
  EXPECT_FALSE(search.done());
  EXPECT_THAT(
      search.Advance(Alternatives{{{1, -1}, {2, -2}, {3, -3}}, {{1, -9}, {2, -9}, {3, -9}}}),
      IsEmpty());
  // -2 / 1 is not as good as -3 / 3 and -4 / 3.
  EXPECT_THAT(TokensOf(search.Best()), ElementsAre(ElementsAre(1, 1, 1), ElementsAre(1, 1, 2)));
}

// After two steps there are two hypotheses, of the sums -0.5 and -4, and a beam whose sum is -3.
BeamSearch TwoHypotheses(EarlyStopping early_stopping, float length_penalty) {
  BeamSearch search({.width = 2,
                     .returned = 2,
                     .length_penalty = length_penalty,
                     .early_stopping = early_stopping},
                    Rule(10));
  search.Advance(Alternatives{{{kStop, -0.5}, {1, -1}, {2, -1.5}}});
  search.Advance(Alternatives{{{1, -2}, {kStop, -3}, {2, -4}}, {{1, -8}, {2, -8}, {3, -8}}});
  return search;
}

TEST(BeamSearchTest, EarlyStoppingSaysWhenEnoughHypothesesAreEnough) {
  EXPECT_TRUE(TwoHypotheses(EarlyStopping::kAlways, 1).done());
  // -3 / 2 beats -4 / 2.
  EXPECT_FALSE(TwoHypotheses(EarlyStopping::kHeuristic, 1).done());
  BeamSearch heuristic = TwoHypotheses(EarlyStopping::kHeuristic, 1);
  BeamSearch never = TwoHypotheses(EarlyStopping::kNever, 1);
  const Alternatives worse = {{{1, -3.5}, {2, -4}, {3, -5}}, {{1, -9}, {2, -9}, {3, -9}}};
  // -6.5 / 3 would not beat -4 / 2, -6.5 / 10 would.
  EXPECT_THAT(heuristic.Advance(worse), IsEmpty());
  EXPECT_TRUE(heuristic.done());
  EXPECT_THAT(never.Advance(worse), testing::SizeIs(2));
  // Where length does not help, never ends as soon.
  BeamSearch flat = TwoHypotheses(EarlyStopping::kNever, 0);
  EXPECT_FALSE(flat.done());  // -3 > -4
  EXPECT_THAT(flat.Advance(worse), IsEmpty());
  EXPECT_THAT(TokensOf(flat.Best()), ElementsAre(ElementsAre(kStop), ElementsAre(1, kStop)));
}

TEST(BeamSearchTest, OfEqualHypothesesTheOlderIsBetter) {
  BeamSearch search({.width = 2, .returned = 2}, Rule(2));
  search.Advance(Alternatives{{{1, -1}, {kStop, -2}, {2, -4}}});
  search.Advance(Alternatives{{{5, -3}, {6, -3}, {7, -3}}, {{1, -9}, {2, -9}, {3, -9}}});
  EXPECT_THAT(TokensOf(search.Best()), ElementsAre(ElementsAre(kStop), ElementsAre(1, 5)));
}

TEST(BeamSearchTest, StoppedEarlyItsBeamsAreHypotheses) {
  BeamSearch search({.width = 2, .returned = 2}, Rule(10));
  search.Advance(Alternatives{{{1, -1}, {2, -2}, {3, -3}}});
  search.Stop();
  EXPECT_THAT(TokensOf(search.Best()), ElementsAre(ElementsAre(1), ElementsAre(2)));
  BeamSearch empty({.width = 2, .returned = 2}, Rule(10));
  empty.Stop();
  EXPECT_THAT(empty.Best(), IsEmpty());
}

TEST(BeamSearchTest, ItAsksForNoMoreAlternativesThanAPlanMay) {
  EXPECT_EQ(BeamSearch({.width = 4}, Rule(1, {})).alternative_count(), 4u);
  EXPECT_EQ(BeamSearch({.width = 4}, Rule(1, {1, 2})).alternative_count(), 6u);
  EXPECT_EQ(
      BeamSearch({.width = kMaxBeamWidth}, Rule(1, std::vector<TokenId>(500))).alternative_count(),
      kMaxStepTopLogprobs);
}

// Of few values, so that most steps have ties.
std::vector<float> LogprobsAfter(std::span<const TokenId> output, uint64_t seed,
                                 uint32_t vocabulary) {
  uint64_t state = Mix64(seed);
  for (const TokenId token : output) state = Mix64(state + 3 * static_cast<uint64_t>(token));
  std::vector<float> logprobs(vocabulary);
  for (uint32_t token = 0; token < vocabulary; ++token) {
    logprobs[token] = -static_cast<float>(1 + Mix64(state ^ Mix64(token)) % 24) / 8;
  }
  return logprobs;
}

std::vector<TokenLogprob> Top(const std::vector<float>& logprobs, uint32_t count) {
  std::vector<TokenLogprob> top;
  for (size_t token = 0; token < logprobs.size(); ++token)
    top.push_back({static_cast<TokenId>(token), logprobs[token]});
  std::stable_sort(top.begin(), top.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob;
  });
  top.resize(std::min<size_t>(count, top.size()));
  return top;
}

TEST(BeamSearchTest, AtRandomItIsThePlainSearch) {
  std::mt19937_64 random(1);
  uint32_t stopped = 0;
  uint32_t limited = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    const auto draw = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
    BeamSearchParams params{.width = 2 + draw(5)};
    params.returned = 1 + draw(params.width);
    params.length_penalty = std::vector<float>{-1, 0, 0.5, 1, 2.5}[draw(5)];
    params.early_stopping = static_cast<EarlyStopping>(draw(3));
    const uint32_t vocabulary = 8 + draw(60);
    const uint32_t max_tokens = 1 + draw(12);
    std::vector<TokenId> stops(draw(4));
    for (TokenId& token : stops) token = static_cast<TokenId>(draw(vocabulary));
    std::sort(stops.begin(), stops.end());
    stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
    const auto logprobs = [&](std::span<const TokenId> output) {
      return LogprobsAfter(output, round, vocabulary);
    };

    BeamSearch search(params, Rule(max_tokens, stops));
    std::vector<std::vector<TokenId>> beams(1);
    while (!search.done()) {
      Alternatives alternatives;
      for (const auto& beam : beams)
        alternatives.push_back(Top(logprobs(beam), search.alternative_count()));
      std::vector<std::vector<TokenId>> next;
      for (const BeamContinuation& it : search.Advance(alternatives)) {
        next.push_back(beams[it.parent]);
        next.back().push_back(it.token);
      }
      beams = std::move(next);
    }
    const std::vector<BeamHypothesis> found = search.Best();
    const std::vector<PlainHypothesis> expected =
        PlainBeamSearch{params, {stops.begin(), stops.end()}, max_tokens, logprobs}.Run();
    ASSERT_EQ(found.size(), expected.size()) << "round " << round;
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].tokens, expected[i].tokens) << "round " << round << ", hypothesis " << i;
      ASSERT_EQ(found[i].score, expected[i].score);
      ASSERT_EQ(found[i].stop_token.has_value(), expected[i].stopped);
      ++(expected[i].stopped ? stopped : limited);
    }
  }
  EXPECT_GT(stopped, 1000u);
  EXPECT_GT(limited, 1000u);
}

}  // namespace
}  // namespace octavo
