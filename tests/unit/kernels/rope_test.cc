#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/fp_env.h"
#include "kernels/half.h"
#include "op_fixtures.h"

namespace octavo::kernels {
namespace {

struct Table {
  std::vector<float> cosine;
  std::vector<float> sine;
};

Table MakeTable(int64_t rope_dim, int64_t positions, double theta = 10000.0,
                double linear_scale = 1.0, const float* factors = nullptr) {
  Table table;
  table.cosine.resize(static_cast<size_t>(positions * rope_dim / 2));
  table.sine.resize(table.cosine.size());
  const RopeTableArgs args{.rope_dim = rope_dim,
                           .max_position = positions,
                           .theta = theta,
                           .linear_scale = linear_scale,
                           .factors = factors,
                           .cosine = table.cosine.data(),
                           .sine = table.sine.data()};
  RopeTable(args, {0, RopeTableWorkCount(args)});
  return table;
}

TEST(RopeTableTest, IsWithinHalfAnUlpAndOneBillionthOfTheTruth) {
  const FlushDenormals mode;
  const int64_t rope_dim = 64;
  for (const double theta : {10000.0, 100000.0, 500000.0}) {
    const Table table = MakeTable(rope_dim, 131072, theta, 2.0);
    double worst = 0;
    for (int64_t position = 0; position < 131072; position += 61) {
      for (int64_t i = 0; i < rope_dim / 2; ++i) {
        const long double frequency =
            std::pow(static_cast<long double>(theta), -2.0L * i / rope_dim) / 2.0L;
        const long double angle = position * frequency;
        const size_t at = static_cast<size_t>(position * rope_dim / 2 + i);
        for (const auto& [value, truth] : {std::pair{table.cosine[at], std::cos(angle)},
                                           std::pair{table.sine[at], std::sin(angle)}}) {
          const double half_ulp =
              std::ldexp(1.0, std::ilogb(static_cast<float>(truth) + 1e-30f)) * 0x1p-24;
          worst = std::max(worst, std::fabs(static_cast<double>(value - truth)) - half_ulp);
        }
      }
    }
    EXPECT_LE(worst, 1e-9) << theta;
  }
}

TEST(RopeTableTest, AnyPartitionGivesTheSameBits) {
  const FlushDenormals mode;
  const Table whole = MakeTable(10, 40);
  Table parts = MakeTable(10, 1);
  parts.cosine.assign(whole.cosine.size(), 0);
  parts.sine.assign(whole.sine.size(), 0);
  const RopeTableArgs args{
      .rope_dim = 10, .max_position = 40, .cosine = parts.cosine.data(), .sine = parts.sine.data()};
  for (int64_t i = 39; i >= 0; --i) RopeTable(args, {i, i + 1});
  EXPECT_TRUE(SameBytes(parts.cosine, whole.cosine));
  EXPECT_TRUE(SameBytes(parts.sine, whole.sine));
}

TEST(RopeTableTest, FactorsDivideTheFrequencyOfTheirPair) {
  const FlushDenormals mode;
  const float factors[4] = {1.0f, 2.0f, 4.0f, 8.0f};
  const Table table = MakeTable(8, 64, 10000.0, 1.0, factors);
  for (int64_t position = 0; position < 64; ++position) {
    for (int i = 0; i < 4; ++i) {
      const double angle = position * std::pow(10000.0, -i / 4.0) / factors[i];
      EXPECT_NEAR(table.cosine[static_cast<size_t>(position * 4 + i)], std::cos(angle), 1e-7);
      EXPECT_NEAR(table.sine[static_cast<size_t>(position * 4 + i)], std::sin(angle), 1e-7);
    }
  }
}

TEST(RopeTableTest, Llama3FactorsFollowThePublishedRule) {
  std::vector<float> factors(32);
  Llama3Factors({.factor = 32,
                 .low_frequency_factor = 1,
                 .high_frequency_factor = 4,
                 .original_context = 8192},
                500000.0, factors);
  for (int i = 0; i < 32; ++i) {
    const double frequency = std::pow(500000.0, -i / 32.0);
    const double wavelength = 2 * M_PI / frequency;
    double scaled = frequency;
    if (wavelength > 8192.0 / 1) {
      scaled = frequency / 32;
    } else if (wavelength >= 8192.0 / 4) {
      const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
      scaled = (1 - smooth) * frequency / 32 + smooth * frequency;
    }
    EXPECT_NEAR(factors[static_cast<size_t>(i)], frequency / scaled, 1e-5 * frequency / scaled)
        << i;
  }
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_EQ(factors.back(), 32.0f);
}

// A pool, tables that scatter blocks over it, rows of three sequences at block edges.
struct Case {
  RopeStyle style;
  KvElement element;
  int64_t block_size;
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t rope_dim;
};

constexpr int64_t kPositions = 70;
constexpr int64_t kSequences = 3;

struct Result {
  std::vector<float> q;
  std::vector<uint16_t> pool;
};

struct Rows {
  std::vector<int32_t> sequences;
  std::vector<int32_t> positions;
};

Rows EdgeRows(int64_t block_size) {
  Rows rows;
  for (int32_t sequence = 0; sequence < kSequences; ++sequence) {
    for (const int64_t position :
         {int64_t{0}, block_size - 1, block_size, block_size + 1, int64_t{69}}) {
      if (position >= kPositions) continue;
      if (!rows.positions.empty() && rows.sequences.back() == sequence &&
          rows.positions.back() >= position) {
        continue;
      }
      rows.sequences.push_back(sequence);
      rows.positions.push_back(static_cast<int32_t>(position));
    }
  }
  return rows;
}

Result RunRope(Isa isa, const Case& c, const Rows& rows, const std::vector<float>& qkv,
               const Table& table, Partition partition) {
  const int64_t row_count = static_cast<int64_t>(rows.positions.size());
  const int64_t blocks = (kPositions + c.block_size - 1) / c.block_size;
  std::vector<uint32_t> block_tables;
  std::vector<int64_t> offsets;
  for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
    offsets.push_back(static_cast<int64_t>(block_tables.size()));
    for (int64_t i = 0; i < blocks; ++i) {
      block_tables.push_back(static_cast<uint32_t>((blocks - 1 - i) * kSequences + sequence));
    }
  }
  Result result;
  result.q = qkv;
  const int64_t stride = (c.query_heads + 2 * c.kv_heads) * c.head_dim;
  const KvPages shape{nullptr, c.element, c.block_size, c.kv_heads, c.head_dim};
  result.pool.assign(static_cast<size_t>(blocks * kSequences * shape.block_stride()), 0xabcd);
  KvPages pages = shape;
  pages.base = result.pool.data();
  const RopeArgs args{.style = c.style,
                      .rope_dim = c.rope_dim,
                      .cosine = table.cosine.data(),
                      .sine = table.sine.data(),
                      .q = result.q.data(),
                      .q_stride = stride,
                      .query_head_count = c.query_heads,
                      .k = result.q.data() + c.query_heads * c.head_dim,
                      .v = result.q.data() + (c.query_heads + c.kv_heads) * c.head_dim,
                      .kv_stride = stride,
                      .rows = {row_count, rows.sequences.data(), rows.positions.data(),
                               block_tables.data(), offsets.data()},
                      .pages = pages};
  RunOp(RopeFor(isa), args, RopeWorkCount(args), partition);
  return result;
}

class RopeTest : public testing::TestWithParam<Case> {};

TEST_P(RopeTest, EveryIsaAndPartitionTurnsAndWritesTheSameBits) {
  const FlushDenormals mode;
  const Case& c = GetParam();
  const Table table = MakeTable(c.rope_dim, kPositions);
  const Rows rows = EdgeRows(c.block_size);
  const int64_t stride = (c.query_heads + 2 * c.kv_heads) * c.head_dim;
  std::vector<float> qkv =
      RandomFloats(1, static_cast<int64_t>(rows.positions.size()) * stride, 4.0f);
  qkv.back() = 1e6f;  // overflows f16
  const Result expected = RunRope(Isa::kScalar, c, rows, qkv, table, Partition::kOneRange);
  for (const Isa isa : SupportedIsas()) {
    for (const Partition partition : kAllPartitions) {
      const Result actual = RunRope(isa, c, rows, qkv, table, partition);
      EXPECT_TRUE(SameBytes(actual.q, expected.q)) << IsaName(isa);
      EXPECT_TRUE(SameBytes(actual.pool, expected.pool)) << IsaName(isa);
    }
  }
}

TEST_P(RopeTest, TurnsPairsByTheirAngleAndWritesOnlyTheRowsSlots) {
  const FlushDenormals mode;
  const Case& c = GetParam();
  const Table table = MakeTable(c.rope_dim, kPositions);
  const Rows rows = EdgeRows(c.block_size);
  const int64_t stride = (c.query_heads + 2 * c.kv_heads) * c.head_dim;
  const int64_t row_count = static_cast<int64_t>(rows.positions.size());
  const std::vector<float> qkv = RandomFloats(2, row_count * stride, 4.0f);
  const Result result = RunRope(DetectIsa(), c, rows, qkv, table, Partition::kOneRange);
  const int64_t blocks = (kPositions + c.block_size - 1) / c.block_size;
  const auto widen = [&](uint16_t x) {
    return c.element == KvElement::kF16 ? F16ToF32(x) : Bf16ToF32(x);
  };
  const double rounding = c.element == KvElement::kF16 ? 0x1p-11 : 0x1p-8;
  const auto turned = [&](const float* x, int64_t d, int32_t position) -> double {
    if (d >= c.rope_dim) return x[d];
    const int64_t half = c.rope_dim / 2;
    const bool interleaved = c.style == RopeStyle::kInterleaved;
    const int64_t pair = interleaved ? d / 2 : d % half;
    const bool second = interleaved ? d % 2 == 1 : d >= half;
    const double x0 = x[interleaved ? 2 * pair : pair];
    const double x1 = x[interleaved ? 2 * pair + 1 : pair + half];
    const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(pair) /
                                                          static_cast<double>(c.rope_dim));
    return second ? x1 * std::cos(angle) + x0 * std::sin(angle)
                  : x0 * std::cos(angle) - x1 * std::sin(angle);
  };
  int64_t slots = 0;
  for (int64_t row = 0; row < row_count; ++row) {
    const int32_t position = rows.positions[static_cast<size_t>(row)];
    const int32_t sequence = rows.sequences[static_cast<size_t>(row)];
    const float* before = qkv.data() + row * stride;
    const float* after = result.q.data() + row * stride;
    for (int64_t i = 0; i < c.query_heads * c.head_dim; ++i) {
      const int64_t head = i / c.head_dim * c.head_dim;
      EXPECT_NEAR(after[i], turned(before + head, i - head, position), 2e-6);
    }
    const int64_t block = (blocks - 1 - position / c.block_size) * kSequences + sequence;
    for (int64_t head = 0; head < c.kv_heads; ++head) {
      const float* k = before + (c.query_heads + head) * c.head_dim;
      const float* v = before + (c.query_heads + c.kv_heads + head) * c.head_dim;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        // [block][K|V][kv_head][block_size][head_dim], written out independently of KvPages.
        const int64_t key =
            (((block * 2 + 0) * c.kv_heads + head) * c.block_size + position % c.block_size) *
                c.head_dim +
            d;
        const int64_t value =
            (((block * 2 + 1) * c.kv_heads + head) * c.block_size + position % c.block_size) *
                c.head_dim +
            d;
        const double truth = turned(k, d, position);
        EXPECT_NEAR(widen(result.pool[static_cast<size_t>(key)]), truth,
                    std::fabs(truth) * rounding + 4e-6);
        EXPECT_NEAR(widen(result.pool[static_cast<size_t>(value)]), v[d],
                    std::fabs(v[d]) * rounding + 1e-7);
      }
    }
    slots += 2 * c.kv_heads * c.head_dim;
  }
  const int64_t written =
      std::count_if(result.pool.begin(), result.pool.end(), [](uint16_t x) { return x != 0xabcd; });
  EXPECT_LE(written, slots);
  EXPECT_GE(written, slots * 9 / 10);  // a value may round to the filler
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RopeTest,
    testing::Values(Case{RopeStyle::kInterleaved, KvElement::kF16, 16, 9, 3, 64, 64},
                    Case{RopeStyle::kHalfSplit, KvElement::kF16, 16, 9, 3, 64, 64},
                    Case{RopeStyle::kInterleaved, KvElement::kBF16, 3, 4, 1, 128, 64},
                    Case{RopeStyle::kHalfSplit, KvElement::kBF16, 48, 4, 4, 128, 128},
                    Case{RopeStyle::kInterleaved, KvElement::kF16, 1, 2, 2, 16, 6},
                    Case{RopeStyle::kHalfSplit, KvElement::kF16, 256, 2, 1, 48, 20},
                    Case{RopeStyle::kHalfSplit, KvElement::kBF16, 5, 1, 1, 256, 256}));

TEST(RopeTest, AnEmptyBatchDoesNothing) {
  const RopeArgs args;
  EXPECT_EQ(RopeWorkCount(args), 0);
  for (const Isa isa : SupportedIsas()) RopeFor(isa)(args, {0, 0});
}

}  // namespace
}  // namespace octavo::kernels
