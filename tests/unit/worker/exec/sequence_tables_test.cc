#include "worker/exec/sequence_tables.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/exec/offer_plan.h"
#include "tests/unit/worker/exec/plan_source.h"

namespace octavo {
namespace {

void ExpectMirrors(const SequenceTables& tables, const PlanSource& source) {
  tables.CheckInvariants();
  ASSERT_EQ(tables.digests(), std::vector<uint64_t>{source.Digest()});
  ASSERT_EQ(tables.sequence_count(), source.sequences().size());
  for (const auto& [id, sequence] : source.sequences()) {
    ASSERT_NE(tables.Find(id), nullptr);
    ASSERT_EQ(tables.Find(id)->tables[0], sequence.table) << "sequence " << id;
  }
}

TEST(SequenceTablesTest, MirrorEqualsTheSchedulersTablesAfterEveryPlan) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PlanSource source(seed, kLimits, kEpoch);
    SequenceTables tables = MakeTables();
    for (int i = 0; i < 200; ++i) {
      const StepPlan plan = source.Next();
      const absl::StatusOr<Order> order = Offer(tables, plan);
      ASSERT_TRUE(order.ok()) << "seed " << seed << ", plan " << i << ": " << order.status();
      EXPECT_EQ(*order, Order::kNext);
      ExpectMirrors(tables, source);
    }
  }
}

// A channel that duplicates, loses, reorders and corrupts. Whatever it does, a plan is applied once
// and in order, or refused without a trace.
TEST(SequenceTablesTest, ABadChannelNeverMovesTheMirror) {
  int repeated = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    PlanSource source(seed, kLimits, kEpoch);
    SequenceTables tables = MakeTables();
    std::vector<StepPlan> applied;
    for (int i = 0; i < 150; ++i) {
      const StepPlan plan = source.Next();
      for (uint32_t trouble = source.Below(9); trouble != 0; trouble = source.Below(9)) {
        StepPlan bad = plan;
        switch (trouble) {
          case 1:  // an old plan comes again
            if (!applied.empty()) {
              const size_t back =
                  source.Below(static_cast<uint32_t>(std::min<size_t>(applied.size(), 8)));
              const StepPlan& old = applied[applied.size() - 1 - back];
              if (back < kStoredResults) {
                const SequenceTables before = tables;
                const absl::StatusOr<Order> order = Offer(tables, old);
                ASSERT_TRUE(order.ok()) << order.status();
                EXPECT_EQ(*order, Order::kRepeated);
                EXPECT_TRUE(tables == before);
                ++repeated;
                continue;
              }
              bad = old;
              break;
            }
            continue;
          case 2:  // this plan was lost, a later one comes
            bad.step = StepNumber(plan.step.value() + 1 + source.Below(3));
            break;
          case 3:
            bad.epoch = Epoch(kEpoch.value() - 1);
            break;
          case 4:
            bad.epoch = Epoch(kEpoch.value() + 1);
            break;
          case 5:
            bad.layer_groups[0].digest ^= uint64_t{1} << source.Below(64);
            break;
          case 6:  // one block id differs
            // (an entry change can name the right block again)
            if (bad.layer_groups[0].new_blocks.empty() ||
                !bad.layer_groups[0].entry_changes.empty()) {
              continue;
            }
            {
              std::vector<BlockId>& blocks = bad.layer_groups[0].new_blocks;
              BlockId& block = blocks[source.Below(static_cast<uint32_t>(blocks.size()))];
              const BlockId other((block.value() + 1) % kLimits.num_blocks);
              if (std::count(blocks.begin(), blocks.end(), other) != 0) continue;
              block = other;
            }
            break;
          case 7:  // a release went missing
            if (bad.releases.empty() || !bad.starts.empty()) continue;
            bad.releases.pop_back();
            break;
          case 8:  // an entry change went missing
            if (bad.layer_groups[0].entry_changes.empty()) continue;
            bad.layer_groups[0].entry_changes.pop_back();
            break;
        }
        const SequenceTables before = tables;
        const absl::StatusOr<Order> order = Offer(tables, bad);
        ASSERT_FALSE(order.ok()) << "seed " << seed << ", plan " << i << ", trouble " << trouble;
        // A wrong block can also be one that another row writes, which is malformed.
        if (trouble != 6 && trouble != 8) {
          EXPECT_EQ(order.status().code(), absl::StatusCode::kFailedPrecondition) << order.status();
        }
        EXPECT_TRUE(tables == before);
        ++refused;
      }
      ASSERT_TRUE(Offer(tables, plan).ok());
      applied.push_back(plan);
      ExpectMirrors(tables, source);
    }
  }
  EXPECT_GT(repeated, 500);
  EXPECT_GT(refused, 5000);
}

TEST(SequenceTablesTest, AResyncAfterLostPlansRestoresTheMirror) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PlanSource source(seed, kLimits, kEpoch);
    SequenceTables tables = MakeTables();
    for (int round = 0; round < 20; ++round) {
      for (uint32_t i = source.Below(6); i > 0; --i) ASSERT_TRUE(Offer(tables, source.Next()).ok());
      for (uint32_t i = 1 + source.Below(3); i > 0; --i) source.Next();  // lost
      ExpectRefused(tables, source.Next(), absl::StatusCode::kFailedPrecondition,
                    "a plan after a gap");
      const absl::StatusOr<Order> order = Offer(tables, source.Resync());
      ASSERT_TRUE(order.ok()) << order.status();
      ExpectMirrors(tables, source);
    }
  }
}

TEST(SequenceTablesTest, AHigherEpochIsEnteredOnlyWithAReset) {
  PlanSource old_source(1, kLimits, kEpoch);
  SequenceTables tables = MakeTables();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Offer(tables, old_source.Next()).ok());
  PlanSource source(2, kLimits, Epoch(kEpoch.value() + 2));
  StepPlan first = source.Next();
  ExpectRefused(tables, first, absl::StatusCode::kFailedPrecondition, "an epoch not entered");
  first.resets_state = true;
  ASSERT_TRUE(Offer(tables, first).ok());
  ExpectMirrors(tables, source);
  EXPECT_EQ(tables.epoch(), Epoch(kEpoch.value() + 2));
  ExpectRefused(tables, old_source.Next(), absl::StatusCode::kFailedPrecondition,
                "a plan of the old epoch");
  EXPECT_EQ(*Offer(tables, first), Order::kRepeated);
  ASSERT_TRUE(Offer(tables, source.Next()).ok());
}

TEST(SequenceTablesTest, ADigestRefusalCarriesBothValues) {
  PlanSource source(1, kLimits, kEpoch);
  SequenceTables tables = MakeTables();
  StepPlan plan = source.Next();
  const uint64_t right = plan.layer_groups[0].digest;
  plan.layer_groups[0].digest = 0x1234;
  absl::Status status = Offer(tables, plan).status();
  EXPECT_EQ(
      TakeReason(status),
      (StatusReason{"DIGEST_MISMATCH",
                    {{"plan_digest", "0x0000000000001234"},
                     {"worker_digest", absl::StrCat("0x", absl::Hex(right, absl::kZeroPad16))}}}));
}

TEST(SequenceTablesTest, SlotsAreReusedAndNeverShared) {
  PlanSource source(5, kLimits, kEpoch);
  SequenceTables tables = MakeTables();
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(Offer(tables, source.Next()).ok());
    tables.CheckInvariants();
  }
}

}  // namespace
}  // namespace octavo
