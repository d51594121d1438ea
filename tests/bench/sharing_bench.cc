// What sharing saves: the production engine under a saturated recorded workload, each request with
// several samples of its recorded length, with a worker that answers every step at once. Time is
// counted in steps, and every step weighs the same. `tools/dev bench sharing`.
//
//   sharing_bench --trace FILE [--name NAME] [--first_turns] [--max_model_len N] [--requests N]
//                 [--log FILE]   (recorded_workload.h, saturated_run.h)
//
// Printed: 1 - (blocks held) / (entries of block tables), both summed over all steps; the second is
// what the same tables would hold without sharing. That is the figure of the PagedAttention paper
// (Kwon et al., SOSP 2023, section 6.3), whose runs of OPT-13B stand beside it. No two
// requests have a prefix in common, no two samples a token; so the prefix index helps only who was
// preempted to find what its siblings hold. The exit code is 1 where more samples do not save more.

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

ABSL_FLAG(uint32_t, max_model_len, 2048, "Tokens of a request at most. The default is OPT-13B's.");
ABSL_FLAG(uint32_t, requests, 500, "Requests at most.");

namespace octavo {
namespace {

using cli::RequestLength;

constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kCounts[] = {2, 4, 6};

// Percent of the blocks that `sample_count` samples a request save by sharing.
double Saved(std::span<const RequestLength> requests, uint32_t sample_count) {
  double held = 0, entries = 0;
  RunSaturated(
      {.options = {.context_length = absl::GetFlag(FLAGS_max_model_len)},
       .block_size = kBlockSize,
       .form = {.sample_count = sample_count}},
      requests, [&](const Engine& engine, const StepPlan&) {
        const SchedulerState state = engine.State();
        held += state.held_blocks - state.returning_blocks;
        for (const RequestRecord& record : engine.ListRequests(0, state.running_sequences)) {
          for (const SequenceRecord& sequence : record.sequences) {
            if (sequence.state == SequenceState::kRunning) entries += sequence.block_count;
          }
        }
      });
  return 100 * (1 - held / entries);
}

absl::StatusOr<bool> Compare() {
  const uint32_t max_model_len = absl::GetFlag(FLAGS_max_model_len);
  const absl::StatusOr<std::vector<RequestLength>> requests =
      ReadRequests(max_model_len, absl::GetFlag(FLAGS_requests));
  if (!requests.ok()) return requests.status();
  double prompt = 0, output = 0;
  for (const RequestLength& request : *requests) {
    prompt += request.prompt_tokens;
    output += request.output_tokens;
  }
  const auto count = static_cast<double>(requests->size());
  const std::string name = absl::GetFlag(FLAGS_name);
  std::printf("%s: %zu requests, on average %.0f + %.0f tokens, blocks of %u\n", name.c_str(),
              requests->size(), prompt / count, output / count, kBlockSize);
  nlohmann::json line = {{"bench", "sharing"},
                         {"workload", name},
                         {"requests", requests->size()},
                         {"max_model_len", max_model_len},
                         {"block_size", kBlockSize}};
  bool holds = true;
  double before = 0;
  std::printf("  parallel samples ");
  for (const uint32_t samples : kCounts) {
    const double saved = Saved(*requests, samples);
    std::printf("  n = %u: %4.1f %%", samples, saved);
    std::fflush(stdout);
    line["samples"][std::to_string(samples)] = saved;
    holds &= saved > before;
    before = saved;
  }
  std::printf("   (paper: 16.2 to 30.5 %% on ShareGPT, 6.1 to 9.8 %% on Alpaca)\n");
  AppendToLog(line);
  if (!holds) std::printf("FAIL  more samples do not save more\n");
  return holds;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::RunBenchmark(argc, argv, "What the samples of a request save by sharing blocks.",
                              octavo::Compare);
}
