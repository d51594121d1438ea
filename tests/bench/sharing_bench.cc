// What sharing saves: the production engine under a saturated recorded workload, each request with
// several samples, or several beams, of its recorded length, with a worker that answers every step
// at once. Time is counted in steps, and every step weighs the same. `tools/dev bench sharing`.
//
//   sharing_bench --trace FILE [--name NAME] [--first_turns] [--max_model_len N] [--requests N]
//                 [--log FILE]   (recorded_workload.h, saturated_run.h)
//
// Printed: 1 - (blocks held) / (entries of block tables), both summed over all steps; the second is
// what the same tables would hold without sharing. That is the figure of the PagedAttention paper
// (Kwon et al., SOSP 2023, section 6.3), whose runs of OPT-13B stand beside it. No two
// requests have a prefix in common, no two samples a token; so the prefix index helps only who was
// preempted to find what its siblings hold. The exit code is 1 where more samples, or wider
// searches, do not save more.
//
// What beams share beyond their prompt depends on how sure the model is, and here is no model: the
// r-th most likely next token of a beam has the probability p (1 - p)^(r - 1), with p drawn anew
// for each beam and position, uniformly from (0, 1). That is a model of 1.64 nats a token, which is
// a perplexity of 5.2.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "common/random.h"
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

// A worker that answers a step at once, `width` alternatives a row: the model described above.
StepResult AnswerBeams(const StepPlan& plan, uint32_t width) {
  StepResult result = AnswerAtOnce(plan);
  for (TokenOutcome& outcome : result.sampled) {
    const double p = RandomUniform(outcome.sequence_id.value(), outcome.position, 0);
    outcome.top_count = width;
    for (uint32_t rank = 0; rank < width; ++rank) {
      result.top.push_back({.token_id = static_cast<TokenId>(rank),
                            .logprob = static_cast<float>(std::log(p) + rank * std::log1p(-p))});
    }
  }
  return result;
}

// Percent of the blocks that the samples, or beams, of such requests save by sharing.
double Saved(std::span<const RequestLength> requests, const SubmitRequest& form) {
  SaturatedRun run{.options = {.context_length = absl::GetFlag(FLAGS_max_model_len)},
                   .block_size = kBlockSize,
                   .form = form};
  if (form.beams) {
    run.answer = [width = form.beams->width](const StepPlan& plan) {
      return AnswerBeams(plan, width);
    };
  }
  double held = 0, entries = 0;
  RunSaturated(run, requests, [&](const Engine& engine, const StepPlan&) {
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

struct Way {
  const char* name;    // in the log
  const char* title;   // in the output
  const char* symbol;  // of its count
  const char* paper;   // for 2 to 6 of them
  SubmitRequest (*form)(uint32_t count);
};

constexpr Way kWays[] = {
    {"samples", "parallel samples", "n", "16.2 to 30.5 % on ShareGPT, 6.1 to 9.8 % on Alpaca",
     [](uint32_t count) { return SubmitRequest{.sample_count = count}; }},
    {"beams", "beam search", "width", "44.3 to 66.3 % on ShareGPT, 37.6 to 55.2 % on Alpaca",
     [](uint32_t count) { return SubmitRequest{.beams = BeamSearchParams{.width = count}}; }},
};

// Prints a line, adds its figures to `log`. Returns whether more saves more.
bool CompareWay(const Way& way, std::span<const RequestLength> requests, nlohmann::json& log) {
  bool holds = true;
  double before = 0;
  std::printf("  %-17s", way.title);
  for (const uint32_t count : kCounts) {
    const double saved = Saved(requests, way.form(count));
    std::printf("  %s = %u: %4.1f %%", way.symbol, count, saved);
    std::fflush(stdout);
    log[way.name][std::to_string(count)] = saved;
    holds &= saved > before;
    before = saved;
  }
  std::printf("   (paper: %s)\n", way.paper);
  return holds;
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
  for (const Way& way : kWays) holds &= CompareWay(way, *requests, line);
  AppendToLog(line);
  if (!holds) std::printf("FAIL  more of them do not save more\n");
  return holds;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::RunBenchmark(argc, argv,
                              "What the samples or beams of a request save by sharing blocks.",
                              octavo::Compare);
}
