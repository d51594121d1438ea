// The scheduler's engine and the worker's mirror of its tables, joined: whatever the engine plans,
// through duplicate, late, lost and reordered messages, resynchronisations and lost replicas, the
// mirror takes every plan it should, refuses the others, and its tables are the engine's.

#include <optional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/sim/simulation.h"
#include "worker/exec/sequence_tables.h"

namespace octavo {
namespace {

TEST(TablesAgreeTest, TheWorkersTablesAlwaysEqualTheSchedulers) {
  uint64_t applied = 0;
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 170; ++seed) {
    std::optional<SequenceTables> tables;
    SimulationOptions options{.seed = seed, .corrupt_tables = false};
    options.on_replica = [&](const ReplicaReady& ready, const EngineOptions& engine) {
      tables.emplace(ready.replica_id, ready.epoch,
                     TableLimits{.num_blocks = ready.layer_groups[0].block_count,
                                 .block_size = ready.layer_groups[0].layout.block_size,
                                 .vocab_size = 1000,
                                 .max_positions = engine.context_length,
                                 .max_sequences = engine.max_sequences,
                                 .max_tokens_per_step = engine.max_step_tokens});
    };
    options.on_plan = [&](const StepPlan& plan, const absl::Status& verdict) {
      const bool is_new = plan.step > tables->step();
      const auto order = tables->CheckOrder(plan);
      absl::Status status = order.status();
      if (order.ok() && *order == SequenceTables::Order::kNext) {
        status = tables->Check(plan);
        if (status.ok()) tables->Apply(plan);
      }
      tables->CheckInvariants();
      ++(status.ok() ? applied : refused);
      if (is_new && status.code() != verdict.code()) {
        return absl::InternalError(absl::StrCat("step ", plan.step.value(), ": the mirror says ",
                                                status.ToString(), ", the simulated worker ",
                                                verdict.ToString()));
      }
      if (is_new && status.ok() && tables->digests()[0] != plan.layer_groups[0].digest) {
        return absl::InternalError("the mirror's digest is another");
      }
      return absl::OkStatus();
    };
    const SimulationReport report = Simulation(options).Run(800);
    ASSERT_TRUE(report.status.ok())
        << report.status << "\n  seed " << seed << ", " << report.setting;
  }
  EXPECT_GT(applied, 10000u);
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace octavo
