// What paging saves: the production engine under a saturated recorded workload, with a worker that
// answers every step at once, for each KV policy and block size. Time is counted in steps, and
// every step weighs the same. `tools/dev bench waste`.
//
//   waste_bench --trace FILE [--name NAME] [--first_turns] [--requests N]
//               [--most_last_block PERCENT] [--log FILE]   (recorded_workload.h, saturated_run.h)
//
// Printed: where the token slots of the pool were, as shares of it, over all steps in which
// somebody waited; "in tables" is reserved and internal together over all slots in tables; "last
// block" is the same ratio for decoding rows of paged tables alone. Contiguous runs hardly depend
// on the block size, so they are shown for one. The exit code is 1 where a limit does not hold.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tests/bench/recorded_workload.h"
#include "tests/bench/saturated_run.h"

ABSL_FLAG(uint32_t, requests, 2000, "Requests at most.");
ABSL_FLAG(double, most_last_block, 100,
          "Percent of the last blocks of paged tables that may be empty, in blocks of 16.");

namespace octavo {
namespace {

using cli::RequestLength;

constexpr uint32_t kMaxModelLen = 8192;

struct Figures {
  double running = 0, tokens = 0, reserved = 0, internal = 0, external = 0;  // sums over steps
  double held = 0;
  uint64_t steps = 0;
  uint64_t decode_empty = 0, decode_slots = 0;  // of paged tables
};

void CountRows(const StepPlan& plan, uint64_t block_size, Figures& figures) {
  for (const PlanRow& row : plan.rows) {
    if (row.token_count != 1 || !row.samples) continue;
    const uint64_t tokens = uint64_t{row.first_position} + 1;
    const uint64_t slots = (tokens + block_size - 1) / block_size * block_size;
    figures.decode_empty += slots - tokens;
    figures.decode_slots += slots;
  }
}

void CountSlots(const Engine& engine, Figures& figures) {
  const SchedulerState state = engine.State();
  if (state.waiting_requests == 0) return;
  const double slots = kPoolTokens;
  const double held = static_cast<double>(state.held_blocks) * state.block_size;
  const auto reserved = static_cast<double>(state.waste.reserved);
  const auto internal = static_cast<double>(state.waste.internal);
  ++figures.steps;
  figures.running += state.running_sequences;
  figures.held += held / slots;
  figures.reserved += reserved / slots;
  figures.internal += internal / slots;
  figures.tokens += (held - reserved - internal) / slots;
  figures.external += static_cast<double>(state.waste.external) / slots;
}

Figures Run(std::span<const RequestLength> requests, KvPolicy policy, uint32_t block_size) {
  Figures figures;
  RunSaturated(
      {.options = {.context_length = kMaxModelLen, .kv_policy = policy, .prefix_cache = false},
       .block_size = block_size},
      requests, [&](const Engine& engine, const StepPlan& plan) {
        CountRows(plan, block_size, figures);
        CountSlots(engine, figures);
      });
  return figures;
}

nlohmann::json Measure(std::span<const RequestLength> requests, KvPolicy policy,
                       uint32_t block_size) {
  const Figures f = Run(requests, policy, block_size);
  const double scale = 100.0 / static_cast<double>(std::max<uint64_t>(f.steps, 1));
  nlohmann::json row = {{"policy", KvPolicyName(policy)},
                        {"block_size", block_size},
                        {"running", f.running * scale / 100},
                        {"tokens", f.tokens * scale},
                        {"reserved", f.reserved * scale},
                        {"internal", f.internal * scale},
                        {"external", f.external * scale},
                        {"in_tables", 100 * (f.reserved + f.internal) / std::max(f.held, 1e-9)}};
  std::printf("%-13s%7u%9.1f", KvPolicyName(policy), block_size, f.running * scale / 100);
  for (const char* share : {"tokens", "reserved", "internal", "external", "in_tables"})
    std::printf("%10.2f%%", row[share].get<double>());
  if (policy == KvPolicy::kPaged) {
    row["last_block"] =
        100.0 * static_cast<double>(f.decode_empty) / static_cast<double>(f.decode_slots);
    std::printf("%11.3f%%", row["last_block"].get<double>());
  }
  std::printf("\n");
  std::fflush(stdout);
  return row;
}

bool Check(const char* what, double figure, double limit, bool at_most) {
  const bool holds = at_most ? figure <= limit : figure >= limit;
  std::printf("%s  %s: %.2f %%, %s %.2f %%\n", holds ? "PASS" : "FAIL", what, figure,
              at_most ? "at most" : "at least", limit);
  return holds;
}

absl::StatusOr<bool> Compare() {
  const absl::StatusOr<std::vector<RequestLength>> requests =
      ReadRequests(kMaxModelLen, absl::GetFlag(FLAGS_requests));
  if (!requests.ok()) return requests.status();
  const std::string name = absl::GetFlag(FLAGS_name);
  std::printf("%s: %zu requests, pool of %u tokens, at most %u a request\n", name.c_str(),
              requests->size(), kPoolTokens, kMaxModelLen);
  std::printf("%-13s%7s%9s%11s%11s%11s%11s%11s%12s\n", "policy", "block", "running", "tokens",
              "reserved", "internal", "external", "in tables", "last block");
  nlohmann::json rows;
  nlohmann::json paged, reserve_max;
  for (const KvPolicy policy : kKvPolicies) {
    for (const uint32_t block_size : {1u, 8u, 16u, 32u, 64u, 128u, 256u}) {
      if (policy != KvPolicy::kPaged && block_size != 16) continue;
      rows.push_back(Measure(*requests, policy, block_size));
      if (policy == KvPolicy::kPaged && block_size == 16) paged = rows.back();
      if (policy == KvPolicy::kReserveMax) reserve_max = rows.back();
    }
  }
  AppendToLog({{"bench", "waste"},
               {"workload", name},
               {"requests", requests->size()},
               {"pool_tokens", kPoolTokens},
               {"max_model_len", kMaxModelLen},
               {"rows", rows}});
  const double reserve_max_waste = reserve_max["reserved"].get<double>() +
                                   reserve_max["internal"].get<double>() +
                                   reserve_max["external"].get<double>();
  bool holds = Check("last block of paged, block 16", paged["last_block"],
                     absl::GetFlag(FLAGS_most_last_block),
                     /*at_most=*/true);
  holds &= Check("waste in tables of paged, block 16", paged["in_tables"], 4, /*at_most=*/true);
  holds &= Check("waste of reserve_max", reserve_max_waste, 60, /*at_most=*/false);
  return holds;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::RunBenchmark(argc, argv, "What paging saves, and what other policies waste.",
                              octavo::Compare);
}
