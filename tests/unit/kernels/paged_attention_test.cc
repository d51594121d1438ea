#include "kernels/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/fp_env.h"
#include "kernels/half.h"
#include "op_fixtures.h"

namespace octavo::kernels {
namespace {

struct Geometry {
  KvElement element = KvElement::kF16;
  int64_t block_size = 16;
  int64_t query_heads = 9;
  int64_t kv_heads = 3;
  int64_t head_dim = 64;
};

std::ostream& operator<<(std::ostream& out, const Geometry& g) {
  return out << (g.element == KvElement::kF16 ? "f16" : "bf16") << " block " << g.block_size
             << " heads " << g.query_heads << "/" << g.kv_heads << " x " << g.head_dim;
}

uint16_t Narrow(KvElement element, float x) {
  return element == KvElement::kF16 ? F32ToF16(x) : F32ToBf16(x);
}
float Widen(KvElement element, uint16_t x) {
  return element == KvElement::kF16 ? F16ToF32(x) : Bf16ToF32(x);
}

// Sequences whose keys, values and queries depend on (sequence, position, head) alone, in a pool
// whose blocks are scattered and whose unwritten slots hold NaN.
class World {
 public:
  World(const Geometry& geometry, std::vector<int64_t> lengths)
      : geometry_(geometry), lengths_(std::move(lengths)) {
    int64_t blocks = 0;
    for (const int64_t length : lengths_) {
      blocks += (length + geometry_.block_size - 1) / geometry_.block_size;
    }
    pages_ = {nullptr, geometry_.element, geometry_.block_size, geometry_.kv_heads,
              geometry_.head_dim};
    pool_.assign(static_cast<size_t>((blocks + 1) * pages_.block_stride()), 0x7fff);  // NaN
    pages_.base = pool_.data();
    int64_t used = 0;
    for (size_t sequence = 0; sequence < lengths_.size(); ++sequence) {
      table_offsets_.push_back(static_cast<int64_t>(tables_.size()));
      const int64_t count = (lengths_[sequence] + geometry_.block_size - 1) / geometry_.block_size;
      // Forwards and backwards from both ends: neighbours in a table are not neighbours in memory.
      for (int64_t i = 0; i < count; ++i, ++used) {
        tables_.push_back(
            static_cast<uint32_t>(used % 2 == 0 ? used / 2 : blocks - (used + 1) / 2));
      }
      for (int64_t position = 0; position < lengths_[sequence]; ++position) {
        WriteSlot(sequence, position);
      }
    }
  }

  const Geometry& geometry() const { return geometry_; }
  int64_t length(size_t sequence) const { return lengths_[sequence]; }

  float Key(size_t sequence, int64_t position, int64_t head, int64_t d) const {
    return Widen(geometry_.element, Stored(1, sequence, position, head, d));
  }
  float Value(size_t sequence, int64_t position, int64_t head, int64_t d) const {
    return Widen(geometry_.element, Stored(2, sequence, position, head, d));
  }
  float Query(size_t sequence, int64_t position, int64_t head, int64_t d) const {
    return RandomFloat(Stream(3, sequence, position), static_cast<uint64_t>(head * 1000 + d), 2.0f);
  }

  // The output rows [row_count, query_heads, head_dim] for the given rows.
  std::vector<float> Attend(Isa isa, const std::vector<int32_t>& sequences,
                            const std::vector<int32_t>& positions, int64_t thread_count = 2,
                            Partition partition = Partition::kOneRange) const {
    const Geometry& g = geometry_;
    const size_t row_floats = static_cast<size_t>(g.query_heads * g.head_dim);
    // A stride wider than the row, as in a fused QKV product.
    const size_t stride = row_floats + 32;
    std::vector<float> q(sequences.size() * stride, std::numeric_limits<float>::quiet_NaN());
    for (size_t row = 0; row < sequences.size(); ++row) {
      for (size_t i = 0; i < row_floats; ++i) {
        const int64_t head = static_cast<int64_t>(i) / g.head_dim;
        q[row * stride + i] = Query(static_cast<size_t>(sequences[row]), positions[row], head,
                                    static_cast<int64_t>(i) % g.head_dim);
      }
    }
    const KvRows rows{static_cast<int64_t>(sequences.size()), sequences.data(), positions.data(),
                      tables_.data(), table_offsets_.data()};
    const AttentionShape shape{g.query_heads, g.kv_heads, g.head_dim, thread_count};
    AttentionPlan plan;
    PlanPagedAttention(shape, rows, &plan);
    std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(shape, plan)),
                               std::numeric_limits<float>::quiet_NaN());
    std::vector<float> out(sequences.size() * row_floats, std::numeric_limits<float>::quiet_NaN());
    const PagedAttentionArgs args{.q = q.data(),
                                  .q_stride = static_cast<int64_t>(stride),
                                  .out = out.data(),
                                  .query_head_count = g.query_heads,
                                  .scale = Scale(),
                                  .rows = rows,
                                  .pages = pages_,
                                  .items = plan.items.data(),
                                  .item_count = static_cast<int64_t>(plan.items.size()),
                                  .merges = plan.merges.data(),
                                  .merge_count = static_cast<int64_t>(plan.merges.size()),
                                  .scratch = scratch.data()};
    RunOp(PagedAttentionFor(isa), args, PagedAttentionWorkCount(args), partition);
    RunOp(MergeAttentionFor(isa), args, MergeAttentionWorkCount(args), partition);
    return out;
  }

  // All rows of a sequence, `chunk` at a time, as chunked prefill computes them.
  std::vector<float> AttendInChunks(Isa isa, int32_t sequence, int64_t chunk) const {
    std::vector<float> out;
    const int64_t total = length(static_cast<size_t>(sequence));
    for (int64_t begin = 0; begin < total; begin += chunk) {
      std::vector<int32_t> positions;
      for (int64_t p = begin; p < std::min(begin + chunk, total); ++p) {
        positions.push_back(static_cast<int32_t>(p));
      }
      const std::vector<int32_t> sequences(positions.size(), sequence);
      const std::vector<float> part = Attend(isa, sequences, positions);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(geometry_.head_dim)); }

 private:
  static uint64_t Stream(uint64_t what, size_t sequence, int64_t position) {
    return (what << 60) | (static_cast<uint64_t>(sequence) << 40) | static_cast<uint64_t>(position);
  }
  uint16_t Stored(uint64_t what, size_t sequence, int64_t position, int64_t head, int64_t d) const {
    const float x = RandomFloat(Stream(what, sequence, position),
                                static_cast<uint64_t>(head * 1000 + d), what == 1 ? 2.0f : 1.0f);
    return Narrow(geometry_.element, x);
  }
  void WriteSlot(size_t sequence, int64_t position) {
    const int64_t block =
        tables_[static_cast<size_t>(table_offsets_[sequence] + position / geometry_.block_size)];
    const int64_t slot = position % geometry_.block_size * geometry_.head_dim;
    for (int64_t head = 0; head < geometry_.kv_heads; ++head) {
      for (int64_t d = 0; d < geometry_.head_dim; ++d) {
        pages_.Keys(block, head)[slot + d] = Stored(1, sequence, position, head, d);
        pages_.Values(block, head)[slot + d] = Stored(2, sequence, position, head, d);
      }
    }
  }

  Geometry geometry_;
  std::vector<int64_t> lengths_;
  KvPages pages_;
  std::vector<uint16_t> pool_;
  std::vector<uint32_t> tables_;
  std::vector<int64_t> table_offsets_;
};

constexpr Geometry kGeometries[] = {
    {KvElement::kF16, 16, 9, 3, 64},     // the default model
    {KvElement::kBF16, 16, 9, 3, 64},    //
    {KvElement::kF16, 16, 8, 8, 128},    // one query head per KV head
    {KvElement::kF16, 48, 8, 2, 128},    // 4
    {KvElement::kBF16, 3, 10, 2, 48},    // 5, and a head that is no multiple of 32
    {KvElement::kF16, 1, 14, 2, 16},     // 7, blocks of one slot
    {KvElement::kF16, 256, 16, 1, 256},  // 16, the widest head
};

// The edges of tiles and splits.
const std::vector<int32_t> kEdges = {0,   1,   14,  15,  16,  17,  31,  32, 254,
                                     255, 256, 257, 510, 511, 512, 513, 600};

TEST(PagedAttentionTest, StaysWithinADerivedBoundOfTheTruth) {
  const FlushDenormals mode;
  for (const Geometry& g : kGeometries) {
    const World world(g, {601});
    const std::vector<float> out =
        world.Attend(Isa::kScalar, std::vector<int32_t>(kEdges.size(), 0), kEdges);
    const int64_t group = g.query_heads / g.kv_heads;
    for (size_t row = 0; row < kEdges.size(); ++row) {
      for (int64_t head = 0; head < g.query_heads; head += 3) {
        std::vector<double> scores;
        double largest_terms = 0;  // of |q||k| summed, what the dot product's error scales with
        for (int64_t j = 0; j <= kEdges[row]; ++j) {
          double dot = 0;
          double terms = 0;
          for (int64_t d = 0; d < g.head_dim; ++d) {
            const double product = static_cast<double>(world.Query(0, kEdges[row], head, d)) *
                                   world.Key(0, j, head / group, d);
            dot += product;
            terms += std::fabs(product);
          }
          scores.push_back(dot * world.Scale());
          largest_terms = std::max(largest_terms, terms * world.Scale());
        }
        const double max = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - max);
        // A score is off by at most (head_dim / 16 + 5) roundings of its terms, plus one for the
        // difference to the maximum; so a weight by that much, relatively, and 1.02 ulp; sums of
        // up to 16 per lane, tile rescales and merges add about 60 roundings more. Twice for the
        // quotient. All relative to values of at most 1.
        const double roundings =
            2 * ((static_cast<double>(g.head_dim) / 16 + 6) * largest_terms + 60);
        for (int64_t d = 0; d < g.head_dim; ++d) {
          double truth = 0;
          for (int64_t j = 0; j <= kEdges[row]; ++j) {
            truth += scores[static_cast<size_t>(j)] / sum * world.Value(0, j, head / group, d);
          }
          const size_t at = (row * static_cast<size_t>(g.query_heads) + static_cast<size_t>(head)) *
                                static_cast<size_t>(g.head_dim) +
                            static_cast<size_t>(d);
          ASSERT_NEAR(out[at], truth, roundings * 0x1p-24)
              << g << " position " << kEdges[row] << " head " << head << " d " << d;
        }
      }
    }
  }
}

TEST(PagedAttentionTest, EveryIsaPartitionAndThreadCountGivesTheSameBits) {
  const FlushDenormals mode;
  for (const Geometry& g : kGeometries) {
    const World world(g, {601, 40});
    std::vector<int32_t> sequences(kEdges.size(), 0);
    std::vector<int32_t> positions = kEdges;
    for (int32_t p = 0; p < 40; ++p) {
      sequences.push_back(1);
      positions.push_back(p);
    }
    const std::vector<float> expected = world.Attend(Isa::kScalar, sequences, positions, 1);
    EXPECT_TRUE(
        std::none_of(expected.begin(), expected.end(), [](float x) { return std::isnan(x); }));
    for (const Isa isa : SupportedIsas()) {
      for (const int64_t threads : {1, 2, 64}) {
        for (const Partition partition : kAllPartitions) {
          // The scalar path is slow and takes its turn once, otherwise cut than in `expected`.
          const bool once = threads == 2 && partition == Partition::kBackwardsInThrees;
          if (isa == Isa::kScalar && !once) continue;
          EXPECT_TRUE(
              SameBytes(world.Attend(isa, sequences, positions, threads, partition), expected))
              << g << " " << IsaName(isa) << " threads " << threads;
        }
      }
    }
  }
}

TEST(PagedAttentionTest, PrefillInChunksHasTheBitsOfDecode) {
  const FlushDenormals mode;
  for (const Geometry& g : {kGeometries[0], kGeometries[3], kGeometries[4]}) {
    const World world(g, {530});
    const Isa isa = DetectIsa();
    const std::vector<float> decode = world.AttendInChunks(isa, 0, 1);
    for (const int64_t chunk : {7, 16, 64, 100, 530}) {
      EXPECT_TRUE(SameBytes(world.AttendInChunks(isa, 0, chunk), decode)) << g << " " << chunk;
    }
  }
}

TEST(PagedAttentionTest, BlockSizesDoNotShowInTheBits) {
  const FlushDenormals mode;
  for (Geometry g : {kGeometries[0], kGeometries[3]}) {
    g.block_size = 16;
    const std::vector<float> expected = World(g, {530}).AttendInChunks(DetectIsa(), 0, 64);
    for (const int64_t block_size : {1, 3, 48, 100, 256}) {
      g.block_size = block_size;
      EXPECT_TRUE(SameBytes(World(g, {530}).AttendInChunks(DetectIsa(), 0, 64), expected)) << g;
    }
  }
}

TEST(PagedAttentionTest, ARowAloneHasTheBitsItHasInABatch) {
  const FlushDenormals mode;
  for (const Geometry& g : {kGeometries[0], kGeometries[5]}) {
    const World world(g, {300, 1, 17, 520, 256, 33});
    // A mixed step: decodes of five sequences around a prefill chunk of the fourth.
    std::vector<int32_t> sequences = {0, 1, 2};
    std::vector<int32_t> positions = {299, 0, 16};
    for (int32_t p = 200; p < 300; ++p) {
      sequences.push_back(3);
      positions.push_back(p);
    }
    sequences.insert(sequences.end(), {4, 5});
    positions.insert(positions.end(), {255, 32});
    const size_t row_floats = static_cast<size_t>(g.query_heads * g.head_dim);
    for (const Isa isa : SupportedIsas()) {
      const std::vector<float> batch = world.Attend(isa, sequences, positions);
      for (size_t row = 0; row < sequences.size(); ++row) {
        const std::vector<float> alone = world.Attend(isa, {sequences[row]}, {positions[row]});
        EXPECT_EQ(
            std::memcmp(alone.data(), batch.data() + row * row_floats, row_floats * sizeof(float)),
            0)
            << g << " row " << row;
      }
    }
  }
}

TEST(PagedAttentionTest, OneKeyReturnsItsValue) {
  const FlushDenormals mode;
  for (const Geometry& g : kGeometries) {
    const World world(g, {1});
    for (const Isa isa : SupportedIsas()) {
      const std::vector<float> out = world.Attend(isa, {0}, {0});
      for (int64_t i = 0; i < g.query_heads * g.head_dim; ++i) {
        const int64_t head = i / g.head_dim / (g.query_heads / g.kv_heads);
        EXPECT_EQ(out[static_cast<size_t>(i)], world.Value(0, 0, head, i % g.head_dim));
      }
    }
  }
}

TEST(PagedAttentionTest, AnEmptyBatchIsNoWork) {
  const World world(kGeometries[0], {1});
  for (const Isa isa : SupportedIsas()) EXPECT_TRUE(world.Attend(isa, {}, {}).empty());
}

TEST(AttentionPlanTest, EveryRowAndSplitIsCoveredOnce) {
  for (const int64_t threads : {1, 2, 16}) {
    for (const int64_t group : {1, 3, 16}) {
      std::vector<int32_t> sequences;
      std::vector<int32_t> positions;
      for (int32_t sequence = 0; sequence < 5; ++sequence) {
        for (int32_t p = 0; p < sequence * 20 + 1; ++p) {
          sequences.push_back(sequence);
          positions.push_back(sequence * 230 + p);
        }
      }
      const KvRows rows{static_cast<int64_t>(sequences.size()), sequences.data(), positions.data(),
                        nullptr, nullptr};
      AttentionPlan plan;
      PlanPagedAttention({2 * group, 2, 64, threads}, rows, &plan);
      std::vector<std::vector<int>> covered(sequences.size());
      for (size_t row = 0; row < covered.size(); ++row) {
        covered[row].assign(static_cast<size_t>(positions[row] / kAttentionSplit + 1), 0);
      }
      std::vector<int> slots(static_cast<size_t>(plan.partial_count), 0);
      for (const AttentionItem& item : plan.items) {
        EXPECT_LE(item.row_count * group, std::max(kAttentionTileVectors, group));
        for (int32_t row = item.first_row; row < item.first_row + item.row_count; ++row) {
          EXPECT_EQ(sequences[static_cast<size_t>(row)],
                    sequences[static_cast<size_t>(item.first_row)]);
          for (int32_t s = item.first_split; s < item.first_split + item.split_count; ++s) {
            auto& counts = covered[static_cast<size_t>(row)];
            if (static_cast<size_t>(s) < counts.size()) ++counts[static_cast<size_t>(s)];
          }
        }
        if (item.first_partial == AttentionItem::kWritesOutput) continue;
        for (int64_t i = 0; i < int64_t{item.split_count} * item.row_count; ++i) {
          ++slots[static_cast<size_t>(item.first_partial + i)];
        }
      }
      for (const auto& counts : covered) EXPECT_EQ(counts, std::vector<int>(counts.size(), 1));
      EXPECT_EQ(slots, std::vector<int>(slots.size(), 1));
      for (const AttentionMerge& merge : plan.merges) {
        EXPECT_EQ(merge.partial_count,
                  positions[static_cast<size_t>(merge.row)] / kAttentionSplit + 1);
      }
    }
  }
}

TEST(AttentionPlanTest, ALongDecodeIsSharedBySplit) {
  const std::vector<int32_t> sequences = {0};
  const std::vector<int32_t> positions = {4095};
  const KvRows rows{1, sequences.data(), positions.data(), nullptr, nullptr};
  AttentionPlan plan;
  PlanPagedAttention({9, 3, 64, 2}, rows, &plan);
  EXPECT_EQ(plan.items.size(), 16u);
  ASSERT_EQ(plan.merges.size(), 1u);
  EXPECT_EQ(plan.merges[0].partial_count, 16);
  PlanPagedAttention({9, 3, 64, 1}, rows, &plan);
  EXPECT_EQ(plan.items.size(), 1u);
  EXPECT_TRUE(plan.merges.empty());
}

}  // namespace
}  // namespace octavo::kernels
