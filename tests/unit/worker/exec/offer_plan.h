#pragma once

// Small sequence tables, and plans offered to them as the executor does.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "worker/exec/sequence_tables.h"

namespace octavo {

using Order = SequenceTables::Order;

inline constexpr TableLimits kLimits{.layer_group_count = 1,
                                     .num_blocks = 48,
                                     .block_size = 4,
                                     .vocab_size = 100,
                                     .max_positions = 64,
                                     .max_sequences = 12,
                                     .max_tokens_per_step = 32};
inline constexpr Epoch kEpoch(3);

inline SequenceTables MakeTables() { return SequenceTables(ReplicaId(0), kEpoch, kLimits); }

// What the executor does with a plan.
inline absl::StatusOr<Order> Offer(SequenceTables& tables, const StepPlan& plan) {
  absl::StatusOr<Order> order = tables.CheckOrder(plan);
  if (!order.ok() || *order == Order::kRepeated) return order;
  if (absl::Status status = tables.Check(plan); !status.ok()) return status;
  tables.Apply(plan);
  return order;
}

inline void ExpectRefused(SequenceTables& tables, const StepPlan& plan, absl::StatusCode code,
                          const std::string& what) {
  const SequenceTables before = tables;
  const absl::StatusOr<Order> order = Offer(tables, plan);
  ASSERT_FALSE(order.ok()) << what;
  EXPECT_EQ(order.status().code(), code) << what << ": " << order.status();
  EXPECT_TRUE(tables == before) << what << " changed something";
}

}  // namespace octavo
