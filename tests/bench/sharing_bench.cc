// What sharing saves: the production engine under a saturated recorded workload, each request with
// several samples of its recorded length, with a worker that answers every step at once. Time is
// counted in steps, and every step weighs the same. `tools/dev bench sharing`.
//
//   sharing_bench --trace FILE [--name NAME] [--first_turns] [--max_model_len N] [--requests N]
//                 [--log FILE]
//
// Printed: 1 - (blocks held) / (entries of block tables), both summed over all steps; the second is
// what the same tables would hold without sharing. That is the figure of the PagedAttention paper
// (Kwon et al., SOSP 2023, section 6.3), whose runs of OPT-13B stand beside it. No two
// requests have a prefix in common, no two samples a token; so the prefix index helps only who was
// preempted to find what its siblings hold. The exit code is 1 where more samples do not save more.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "scheduler/core/engine.h"
#include "tests/bench/recorded_requests.h"

namespace octavo {
namespace {

using cli::RequestLength;

constexpr uint32_t kPoolTokens = 131'072;
constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kCounts[] = {2, 4, 6};

struct Options {
  std::string trace, name, log;
  bool first_turns = false;
  uint32_t max_model_len = 2048;  // OPT-13B's
  size_t requests = 500;
};

StepResult Answer(const StepPlan& plan) {
  StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
  result.digests = {plan.layer_groups[0].digest};
  for (const PlanRow& row : plan.rows) {
    if (!row.samples) continue;
    result.sampled.push_back({row.sequence_id, row.first_position + row.token_count,
                              static_cast<TokenId>(row.sequence_id.value()), 0, 0});
  }
  return result;
}

// Percent of the blocks that `sample_count` samples a request save by sharing.
double Saved(const Options& options, const std::vector<RequestLength>& requests,
             uint32_t sample_count) {
  Engine engine({.context_length = options.max_model_len,
                 .max_sequences = 1024,
                 .max_steps_in_flight = 1,
                 .max_waiting_requests = static_cast<uint32_t>(requests.size()),
                 .max_waiting_tokens = uint64_t{1} << 40});
  const KvLayout layout{
      .block_size = kBlockSize, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  const absl::Time now = absl::UnixEpoch();
  std::vector<Action> actions;
  engine.Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, kPoolTokens / kBlockSize}}}, now,
                actions);
  uint64_t id = 0;
  for (const RequestLength& request : requests) {
    engine.Handle(SubmitRequest{.request_id = RequestId(++id),
                                .prompt = std::vector<TokenId>(request.prompt_tokens,
                                                               static_cast<TokenId>(id)),
                                .sample_count = sample_count,
                                .max_tokens = request.output_tokens},
                  now, actions);
  }
  actions.clear();
  double held = 0, entries = 0;
  while (engine.PlanNext(now, actions)) {
    const StepPlan plan = std::get<SendPlan>(std::move(actions.back())).plan;
    actions.clear();
    const SchedulerState state = engine.State();
    held += state.held_blocks - state.returning_blocks;
    for (const RequestRecord& record : engine.ListRequests(0, state.running_sequences)) {
      for (const SequenceRecord& sequence : record.sequences) {
        if (sequence.state == SequenceState::kRunning) entries += sequence.block_count;
      }
    }
    engine.Handle(StepCompleted{Answer(plan)}, now, actions);
    actions.clear();
  }
  CHECK(engine.idle()) << "the engine stopped with requests left";
  return 100 * (1 - held / entries);
}

bool Compare(const Options& options, const std::vector<RequestLength>& requests) {
  double prompt = 0, output = 0;
  for (const RequestLength& request : requests) {
    prompt += request.prompt_tokens;
    output += request.output_tokens;
  }
  const auto count = static_cast<double>(requests.size());
  std::printf("%s: %zu requests, on average %.0f + %.0f tokens, blocks of %u\n",
              options.name.c_str(), requests.size(), prompt / count, output / count, kBlockSize);
  nlohmann::json line = {{"bench", "sharing"},
                         {"workload", options.name},
                         {"requests", requests.size()},
                         {"max_model_len", options.max_model_len},
                         {"block_size", kBlockSize}};
  bool holds = true;
  double before = 0;
  std::printf("  parallel samples ");
  for (const uint32_t samples : kCounts) {
    const double saved = Saved(options, requests, samples);
    std::printf("  n = %u: %4.1f %%", samples, saved);
    std::fflush(stdout);
    line["samples"][std::to_string(samples)] = saved;
    holds &= saved > before;
    before = saved;
  }
  std::printf("   (paper: 16.2 to 30.5 %% on ShareGPT, 6.1 to 9.8 %% on Alpaca)\n");
  if (!options.log.empty()) std::ofstream(options.log, std::ios::app) << line << "\n";
  if (!holds) std::printf("FAIL  more samples do not save more\n");
  return holds;
}

int Main(int argc, char** argv) {
  Options options;
  bool valid = true;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--first_turns") {
      options.first_turns = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--trace") {
      options.trace = value;
    } else if (flag == "--name") {
      options.name = value;
    } else if (flag == "--log") {
      options.log = value;
    } else if (flag == "--requests") {
      valid &= absl::SimpleAtoi(value, &options.requests);
    } else if (flag == "--max_model_len") {
      valid &= absl::SimpleAtoi(value, &options.max_model_len);
    } else {
      valid = false;
    }
  }
  if (!valid || options.trace.empty()) {
    std::fprintf(stderr,
                 "usage: sharing_bench --trace FILE [--name NAME] [--first_turns] "
                 "[--max_model_len N] [--requests N] [--log FILE]\n");
    return 2;
  }
  const auto trace = cli::ReadTraceFile(options.trace);
  if (!trace.ok()) {
    std::fprintf(stderr, "sharing_bench: %s\n", std::string(trace.status().message()).c_str());
    return 2;
  }
  const std::vector<RequestLength> requests =
      SelectRequests(*trace, options.first_turns, options.max_model_len, options.requests);
  if (requests.empty()) {
    std::fprintf(stderr, "sharing_bench: no request of %s fits --max_model_len=%u\n",
                 options.trace.c_str(), options.max_model_len);
    return 2;
  }
  return Compare(options, requests) ? 0 : 1;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }
