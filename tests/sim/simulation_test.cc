// Random workloads and faults over the production engine. OCTAVO_SIM_SEED=N replays one seed;
// OCTAVO_SIM_SEEDS=N runs that many.

#include "tests/sim/simulation.h"

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t absent) {
  const char* text = std::getenv(name);
  uint64_t value = absent;
  if (text != nullptr && !absl::SimpleAtoi(text, &value)) ADD_FAILURE() << name << " is " << text;
  return value;
}

struct Totals {
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t whole = 0;
  uint64_t copies = 0;
  uint64_t shared_in_step = 0;
  uint64_t failures = 0;
  uint64_t born_samples = 0;
  uint64_t tail_copies = 0;
  uint64_t outside_hits = 0;
  uint64_t beam_searches = 0;
  uint64_t given_up = 0;
  EngineCounters counters;
};

Totals RunSeeds(uint64_t count, uint32_t turns, bool faults) {
  const uint64_t only = FromEnvironment("OCTAVO_SIM_SEED", 0);
  Totals totals;
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : count); ++seed) {
    const SimulationReport report = Simulation({.seed = seed, .faults = faults}).Run(turns);
    EXPECT_TRUE(report.status.ok())
        << report.status << "\n  with " << report.setting << "\n  replay: OCTAVO_SIM_SEED=" << seed
        << " build/tests/simulation_test --gtest_filter="
        << testing::UnitTest::GetInstance()->current_test_suite()->name() << "."
        << testing::UnitTest::GetInstance()->current_test_info()->name();
    if (!report.status.ok()) break;
    totals.requests += report.requests;
    totals.whole += report.whole_streams;
    totals.copies += report.copies;
    totals.shared_in_step += report.shared_in_step;
    totals.failures += report.failures;
    totals.born_samples += report.born_samples;
    totals.tail_copies += report.tail_copies;
    totals.outside_hits += report.outside_hits;
    totals.beam_searches += report.beam_searches;
    totals.given_up += report.given_up;
    EngineCounters& sum = totals.counters;
    sum.steps_completed += report.counters.steps_completed;
    sum.preemptions += report.counters.preemptions;
    sum.prefix_hit_tokens += report.counters.prefix_hit_tokens;
    sum.prefix_in_flight_hit_tokens += report.counters.prefix_in_flight_hit_tokens;
    sum.evicted_blocks += report.counters.evicted_blocks;
    sum.duplicate_results += report.counters.duplicate_results;
    sum.reordered_results += report.counters.reordered_results;
    sum.stale_results += report.counters.stale_results;
    sum.resyncs += report.counters.resyncs;
    sum.replica_losses += report.counters.replica_losses;
  }
  const EngineCounters& sum = totals.counters;
  std::cout << totals.requests << " requests (" << totals.whole << " whole), "
            << sum.steps_completed << " steps, " << sum.preemptions << " preemptions, "
            << sum.prefix_hit_tokens << " hit tokens (" << sum.prefix_in_flight_hit_tokens
            << " in flight, " << totals.shared_in_step << " blocks in one step), "
            << totals.failures << " failed rows, " << totals.copies << " copies ("
            << totals.tail_copies << " of shared tails), " << totals.born_samples
            << " samples born, " << totals.beam_searches << " beam searches, " << sum.evicted_blocks
            << " evictions, " << sum.duplicate_results << " duplicate, " << sum.reordered_results
            << " reordered, " << sum.stale_results << " stale results, " << sum.resyncs
            << " resyncs, " << sum.replica_losses << " replica losses, " << totals.given_up
            << " requests given up\n";
  return totals;
}

TEST(SimulationTest, EveryStreamIsWhatItsRequestAloneWouldHaveProduced) {
  const Totals totals = RunSeeds(FromEnvironment("OCTAVO_SIM_SEEDS", 400), 600, /*faults=*/false);
  if (std::getenv("OCTAVO_SIM_SEED") != nullptr) return;
  EXPECT_GT(totals.counters.preemptions, 0u);
  EXPECT_GT(totals.counters.prefix_hit_tokens, 0u);
  EXPECT_GT(totals.counters.evicted_blocks, 0u);
  EXPECT_GT(totals.outside_hits, 0u);
  EXPECT_GT(totals.copies, 0u);
  EXPECT_GT(totals.shared_in_step, 0u);
  EXPECT_GT(totals.born_samples, 0u);
  EXPECT_GT(totals.tail_copies, 0u);
  EXPECT_GT(totals.beam_searches, 0u);
}

TEST(SimulationTest, NoFaultLosesABlockATokenOrAnEnding) {
  const Totals totals = RunSeeds(FromEnvironment("OCTAVO_SIM_SEEDS", 800), 1500, /*faults=*/true);
  if (std::getenv("OCTAVO_SIM_SEED") != nullptr) return;
  EXPECT_GT(totals.whole, 0u);
  EXPECT_GT(totals.counters.duplicate_results, 0u);
  EXPECT_GT(totals.counters.reordered_results, 0u);
  EXPECT_GT(totals.counters.stale_results, 0u);
  EXPECT_GT(totals.counters.resyncs, 0u);
  EXPECT_GT(totals.counters.replica_losses, 0u);
  EXPECT_GT(totals.given_up, 0u);
  EXPECT_GT(totals.shared_in_step, 0u);
  EXPECT_GT(totals.counters.prefix_in_flight_hit_tokens, 0u);
  EXPECT_GT(totals.failures, 0u);
  EXPECT_GT(totals.beam_searches, 0u);
  EXPECT_GT(totals.counters.preemptions, 0u);
  EXPECT_GT(totals.tail_copies, 0u);
}

TEST(SimulationTest, ASeedReplaysExactly) {
  const auto plans = [](uint64_t seed) {
    std::vector<StepPlan> seen;
    SimulationOptions options{.seed = seed};
    options.on_plan = [&](const StepPlan& plan, const absl::Status&) {
      seen.push_back(plan);
      return absl::OkStatus();
    };
    EXPECT_TRUE(Simulation(options).Run(1000).status.ok());
    return seen;
  };
  const std::vector<StepPlan> first = plans(3);
  EXPECT_GT(first.size(), 50u);
  EXPECT_TRUE(first == plans(3));
  EXPECT_FALSE(first == plans(4));
}

}  // namespace
}  // namespace octavo
