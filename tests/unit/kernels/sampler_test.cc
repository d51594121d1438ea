#include "kernels/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/fp_env.h"
#include "kernels/math.h"
#include "op_fixtures.h"
#include "sampler_definition.h"

namespace octavo::kernels {
namespace {

SamplerResult SampleOne(Isa isa, const SamplerRow& row, int64_t vocab_size) {
  SamplerResult result;
  const SamplerArgs args{&row, &result, 1, vocab_size};
  RunOp(SamplerFor(isa), args, SamplerWorkCount(args));
  return result;
}

// Draws parameters and logits from the `index`-th stream.
Question RandomQuestion(uint64_t index, int64_t vocab_size) {
  uint32_t next = 0;
  const auto bits = [&](uint32_t below) { return RandomBits(77, index, next++) % below; };
  const auto unit = [&] { return RandomUniform(78, index, next++); };
  Question q;
  // From nearly flat, where thousands of tokens share the mass, to sharp; sometimes on a grid, so
  // that there are ties.
  const float spread = std::exp2(static_cast<float>(bits(12)) - 4.0f);
  q.logits = RandomFloats(1000 + index, vocab_size, spread);
  if (bits(3) == 0) {
    for (float& x : q.logits) x = std::nearbyint(x * 4) / 4;
  }
  SamplerRow& row = q.row;
  row.temperature = bits(6) == 0 ? 0.0f : std::exp2(unit() * 6 - 3);
  if (bits(2) == 0) {
    row.top_k = bits(3) == 0 ? bits(static_cast<uint32_t>(vocab_size) + 10) : 1 + bits(60);
  }
  if (bits(2) == 0) row.top_p = bits(8) == 0 ? 0.9999999f : std::max(0.001f, unit());
  if (bits(3) == 0) row.min_p = bits(8) == 0 ? 1.0f : unit() * unit() * unit();
  if (bits(2) == 0) {
    row.repetition_penalty = std::exp2(unit() * 2 - 1);
    row.frequency_penalty = unit() * 4 - 2;
    row.presence_penalty = unit() * 4 - 2;
    for (int64_t t = 0; t < vocab_size; t += 1 + bits(30)) {
      q.history.push_back({static_cast<int32_t>(t), bits(4), bits(3)});
    }
  }
  for (int64_t t = bits(40); t < vocab_size && q.biases.size() < 20; t += 1 + bits(40)) {
    q.biases.push_back({static_cast<int32_t>(t), unit() * 20 - 10});
  }
  for (int64_t t = bits(40); t + 1 < vocab_size && q.masked.size() < 5; t += 1 + bits(40)) {
    q.masked.push_back(static_cast<int32_t>(t));
  }
  row.seed = index;
  row.position = bits(100000);
  return q;
}

TEST(SamplerTest, EveryIsaChoosesWhatTheDefinitionChooses) {
  const FlushDenormals mode;
  uint64_t index = 0;
  for (const auto& [vocab_size, count] : {std::pair{1, 20},
                                          {2, 60},
                                          {7, 300},
                                          {8, 300},
                                          {1000, 300},
                                          {1023, 100},
                                          {1024, 100},
                                          {1025, 100},
                                          {5000, 150},
                                          {20000, 60},
                                          {49152, 60}}) {
    for (int i = 0; i < count; ++i, ++index) {
      Question question = RandomQuestion(index, vocab_size);
      const std::vector<float> before = question.logits;
      const int32_t expected = Definition(question).Choose();
      for (const Isa isa : SupportedIsas()) {
        const SamplerResult result = SampleOne(isa, question.Row(), vocab_size);
        ASSERT_EQ(result.status, SamplerStatus::kOk) << index;
        ASSERT_EQ(result.token_id, expected) << IsaName(isa) << " question " << index;
        ASSERT_TRUE(SameBytes(question.logits, before)) << "the row must come back unchanged";
      }
    }
  }
}

TEST(SamplerTest, CutsAreExactAmongThousandsOfEqualTokens) {
  // Too many candidates to sort: every token is as likely as the next, or nearly.
  const FlushDenormals mode;
  const int64_t vocab_size = 20000;
  for (const float step : {0.0f, 1e-4f}) {
    Question q;
    q.logits.resize(static_cast<size_t>(vocab_size));
    for (size_t i = 0; i < q.logits.size(); ++i) {
      q.logits[i] = static_cast<float>((i * 7919) % 20000) * step;
    }
    for (const auto& [top_k, top_p] : {std::pair{5000u, 1.0f},
                                       {19999u, 1.0f},
                                       {0u, 0.5f},
                                       {0u, 0.37f},
                                       {9000u, 0.5f},
                                       {0u, 0.99999f},
                                       {4096u, 0.8f},
                                       {4097u, 0.8f}}) {
      q.row.top_k = top_k;
      q.row.top_p = top_p;
      Definition definition(q);
      for (uint64_t position = 0; position < 20; ++position) {
        q.row.position = position;
        const int32_t expected = definition.ChooseAt(position);
        for (const Isa isa : SupportedIsas()) {
          if (isa == Isa::kScalar && position >= 3) continue;  // it is slow
          ASSERT_EQ(SampleOne(isa, q.Row(), vocab_size).token_id, expected)
              << "top_k " << top_k << " top_p " << top_p << " " << IsaName(isa);
        }
      }
    }
  }
}

TEST(SamplerTest, AMillionDrawsFollowTheDistribution) {
  const FlushDenormals mode;
  constexpr int64_t kVocabulary = 50;
  constexpr int kDraws = 1000000;
  constexpr int kBatch = 1000;
  Question q;
  q.logits = RandomFloats(5, kVocabulary, 2.0f);
  q.row.temperature = 1.3f;
  std::vector<double> expected(kVocabulary);
  double sum = 0;
  for (size_t i = 0; i < kVocabulary; ++i) sum += expected[i] = std::exp(q.logits[i] / 1.3);
  std::vector<int64_t> seen(kVocabulary);
  std::vector<SamplerRow> rows(kBatch, q.Row());
  std::vector<SamplerResult> results(kBatch);
  for (int draw = 0; draw < kDraws; draw += kBatch) {
    for (int i = 0; i < kBatch; ++i) {
      // Half of the draws walk positions, half seeds: both must be as good as independent.
      const uint64_t n = static_cast<uint64_t>(draw + i);
      rows[static_cast<size_t>(i)].seed = draw < kDraws / 2 ? 1 : n;
      rows[static_cast<size_t>(i)].position = draw < kDraws / 2 ? n : 3;
    }
    SamplerFor(DetectIsa())({rows.data(), results.data(), kBatch, kVocabulary}, {0, kBatch});
    for (const SamplerResult& result : results) ++seen[static_cast<size_t>(result.token_id)];
  }
  double chi_square = 0;
  for (size_t i = 0; i < kVocabulary; ++i) {
    const double mean = expected[i] / sum * kDraws;
    ASSERT_GT(mean, 50);
    chi_square +=
        (static_cast<double>(seen[i]) - mean) * (static_cast<double>(seen[i]) - mean) / mean;
  }
  // 49 degrees of freedom: 85.4 is exceeded once in a thousand times, and 23.9 is not reached as
  // seldom (draws more regular than chance would be wrong too).
  EXPECT_LT(chi_square, 85.4);
  EXPECT_GT(chi_square, 23.9);
  RecordProperty("chi_square", std::to_string(chi_square));
}

TEST(SamplerTest, GreedyTakesTheLowestIdOfTheLargestLogits) {
  Question q;
  q.logits = {-1, 3, 2, 3, 3, -7, 0, 1, 3};
  q.row.temperature = 0;
  for (const Isa isa : SupportedIsas()) {
    q.biases.clear();
    EXPECT_EQ(SampleOne(isa, q.Row(), 9).token_id, 1);
    q.biases = {{1, -0.5f}};
    EXPECT_EQ(SampleOne(isa, q.Row(), 9).token_id, 3);
    q.biases = {{6, 3.5f}};
    EXPECT_EQ(SampleOne(isa, q.Row(), 9).token_id, 6);
  }
}

TEST(SamplerTest, PenaltiesFollowTheirFormulas) {
  // Each case leaves token 1 (4.0, or -4.0 with `sign`) just below or just above token 0.
  struct Case {
    const char* what;
    float sign;
    TokenHistory seen;
    float repetition;
    float presence;
    float frequency;
    float penalised;
  };
  const Case cases[] = {
      {"repetition divides what is positive", 1, {1, 0, 1}, 2.0f, 0, 0, 2.0f},
      {"repetition multiplies what is negative", -1, {1, 2, 0}, 2.0f, 0, 0, -8.0f},
      {"presence counts once", 1, {1, 3, 0}, 1.0f, 0.5f, 0, 3.5f},
      {"frequency counts each", 1, {1, 3, 0}, 1.0f, 0, 0.5f, 2.5f},
      {"presence and frequency ignore the prompt", 1, {1, 0, 3}, 1.0f, 0.5f, 0.5f, 4.0f},
      {"negative penalties reward", 1, {1, 2, 0}, 1.0f, -0.5f, -0.25f, 5.0f},
      {"repetition comes first", 1, {1, 1, 0}, 2.0f, 0.5f, 0.25f, 1.25f},
  };
  for (const Case& c : cases) {
    for (const float offset : {-0.01f, 0.01f}) {
      Question q;
      q.logits = {c.penalised + offset, 4.0f * c.sign, -100.0f};
      q.history = {c.seen};
      q.row.temperature = 0;
      q.row.repetition_penalty = c.repetition;
      q.row.presence_penalty = c.presence;
      q.row.frequency_penalty = c.frequency;
      for (const Isa isa : SupportedIsas()) {
        EXPECT_EQ(SampleOne(isa, q.Row(), 3).token_id, offset < 0 ? 1 : 0) << c.what;
      }
    }
  }
}

TEST(SamplerTest, MaskedTokensAreNeverChosen) {
  const FlushDenormals mode;
  Question q;
  q.logits = {9, 8, 7, 6};
  q.masked = {0, 2};
  for (const Isa isa : SupportedIsas()) {
    q.row.temperature = 0;
    EXPECT_EQ(SampleOne(isa, q.Row(), 4).token_id, 1);
    q.row.temperature = 10;
    for (q.row.position = 0; q.row.position < 200; ++q.row.position) {
      const int32_t token = SampleOne(isa, q.Row(), 4).token_id;
      EXPECT_TRUE(token == 1 || token == 3) << token;
    }
    EXPECT_EQ(q.logits, (std::vector<float>{9, 8, 7, 6}));
  }
}

TEST(SamplerTest, RowsThatAreNotFiniteFailAloneAndAloud) {
  const FlushDenormals mode;
  const int64_t vocab_size = 1030;
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t where : {0u, 7u, 512u, 1029u}) {
      std::vector<float> logits = RandomFloats(1, 3 * vocab_size, 5.0f);
      logits[static_cast<size_t>(vocab_size) + where] = bad;
      std::vector<SamplerRow> rows(3);
      for (int i = 0; i < 3; ++i) {
        rows[static_cast<size_t>(i)].logits = logits.data() + i * vocab_size;
        rows[static_cast<size_t>(i)].wants_logprobs = true;
      }
      for (const Isa isa : SupportedIsas()) {
        std::vector<SamplerResult> results(3);
        SamplerFor(isa)({rows.data(), results.data(), 3, vocab_size}, {0, 3});
        EXPECT_EQ(results[0].status, SamplerStatus::kOk);
        EXPECT_EQ(results[1].status, SamplerStatus::kNonFinite);
        EXPECT_EQ(results[2].status, SamplerStatus::kOk);
      }
    }
  }
}

TEST(SamplerTest, ARowWithNothingLeftToChooseIsNotFinite) {
  Question q;
  q.logits = {1, 2};
  q.masked = {0, 1};
  for (const Isa isa : SupportedIsas()) {
    for (const float temperature : {0.0f, 1.0f}) {
      q.row.temperature = temperature;
      EXPECT_EQ(SampleOne(isa, q.Row(), 2).status, SamplerStatus::kNonFinite);
      EXPECT_EQ(q.logits, (std::vector<float>{1, 2}));
    }
  }
}

TEST(SamplerTest, LogprobsAreThoseOfTheRawLogitsAndHaveTheSameBitsEverywhere) {
  const FlushDenormals mode;
  for (const int64_t vocab_size : {1, 5, 20, 1000, 1024, 1025, 8192, 49152}) {
    Question q;
    q.logits = RandomFloats(11, vocab_size, 12.0f);
    for (size_t i = 0; i < q.logits.size(); i += 3) q.logits[i] = std::nearbyint(q.logits[i]);
    q.row.wants_logprobs = true;
    q.row.top_count = kMaxTopCount;
    q.biases = {{0, 5.0f}};  // must not show
    const double max = *std::max_element(q.logits.begin(), q.logits.end());
    double sum = 0;
    for (const float logit : q.logits) sum += std::exp(logit - max);
    std::vector<int32_t> ranking(q.logits.size());
    std::iota(ranking.begin(), ranking.end(), 0);
    std::stable_sort(ranking.begin(), ranking.end(), [&](int32_t a, int32_t b) {
      return q.logits[static_cast<size_t>(a)] > q.logits[static_cast<size_t>(b)];
    });
    const auto logprob = [&](int32_t token) {
      return q.logits[static_cast<size_t>(token)] - max - std::log(sum);
    };
    const SamplerResult expected = SampleOne(Isa::kScalar, q.Row(), vocab_size);
    EXPECT_EQ(expected.top_count, std::min<int64_t>(kMaxTopCount, vocab_size));
    // log(S): relative error of S at most 10 + V / 1024 + 2 roundings; differences up to 36.
    const double bound = (12 + static_cast<double>(vocab_size) / 1024 + 3 * 36) * 0x1p-24;
    EXPECT_NEAR(expected.logprob, logprob(expected.token_id), bound);
    for (int32_t i = 0; i < expected.top_count; ++i) {
      EXPECT_EQ(expected.top_tokens[i], ranking[static_cast<size_t>(i)]);
      EXPECT_NEAR(expected.top_logprobs[i], logprob(expected.top_tokens[i]), bound);
    }
    for (const Isa isa : SupportedIsas()) {
      const SamplerResult actual = SampleOne(isa, q.Row(), vocab_size);
      EXPECT_TRUE(actual == expected) << IsaName(isa);
      SamplerRow scored = q.Row();
      scored.mode = SamplerMode::kScore;
      scored.scored_token = static_cast<int32_t>(vocab_size / 2);
      const SamplerResult score = SampleOne(isa, scored, vocab_size);
      EXPECT_EQ(score.token_id, scored.scored_token);
      EXPECT_NEAR(score.logprob, logprob(scored.scored_token), bound);
      EXPECT_EQ(std::memcmp(score.top_logprobs, expected.top_logprobs, sizeof(score.top_logprobs)),
                0);
    }
  }
}

TEST(SamplerTest, TopTokensAmongThousandsOfTiesAreTheLowestIds) {
  Question q;
  q.logits.assign(9000, 1.0f);
  q.logits[8000] = 2.0f;
  q.row.wants_logprobs = true;
  q.row.top_count = 3;
  for (const Isa isa : SupportedIsas()) {
    const SamplerResult result = SampleOne(isa, q.Row(), 9000);
    EXPECT_EQ(result.top_tokens[0], 8000);
    EXPECT_EQ(result.top_tokens[1], 0);
    EXPECT_EQ(result.top_tokens[2], 1);
  }
}

TEST(SamplerTest, ARowsChoiceDoesNotDependOnItsBatchOrPartition) {
  const FlushDenormals mode;
  const int64_t vocab_size = 3000;
  std::vector<Question> questions;
  for (uint64_t i = 0; i < 17; ++i) questions.push_back(RandomQuestion(5000 + i, vocab_size));
  std::vector<SamplerRow> rows;
  for (Question& question : questions) {
    question.row.wants_logprobs = true;
    question.row.top_count = 4;
    rows.push_back(question.Row());
  }
  std::vector<SamplerResult> alone;
  for (const SamplerRow& row : rows) alone.push_back(SampleOne(Isa::kScalar, row, vocab_size));
  for (const Isa isa : SupportedIsas()) {
    for (const Partition partition : kAllPartitions) {
      std::vector<SamplerResult> results(rows.size());
      const SamplerArgs args{rows.data(), results.data(), 17, vocab_size};
      RunOp(SamplerFor(isa), args, SamplerWorkCount(args), partition);
      EXPECT_TRUE(results == alone) << IsaName(isa);
    }
  }
}

TEST(SamplerTest, EqualSeedsAndPositionsDrawTheSameTokenAndOthersDoNot) {
  const FlushDenormals mode;
  Question q;
  q.logits = std::vector<float>(1000, 0.0f);
  const auto draw = [&](uint64_t seed, uint64_t position, uint32_t draw_index) {
    q.row.seed = seed;
    q.row.position = position;
    q.row.draw = draw_index;
    return SampleOne(DetectIsa(), q.Row(), 1000).token_id;
  };
  EXPECT_EQ(draw(1, 2, 0), draw(1, 2, 0));
  int different = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    different += draw(i, 2, 0) != draw(i + 1, 2, 0);
    different += draw(1, i, 0) != draw(1, i + 1, 0);
    different += draw(1, i, 0) != draw(1, i, 1);
  }
  EXPECT_GE(different, 58);
}

}  // namespace
}  // namespace octavo::kernels
