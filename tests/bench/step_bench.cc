// Steps of a model in process, beside the floors of the machine measured in the same run.
//
//   step_bench decode|prefill [--model FILE] [--threads N] [--isa auto|scalar|avx2] [--rounds N]
//   [--log FILE]
//
// decode: tokens a second at batch 1, 8 and 32, contexts from 64 on, two steps in flight. prefill:
// prompts of 512 tokens, one step each. Floor of a step: the larger of (bytes of the weights and of
// the keys and values read) ÷ read bandwidth over a buffer the size of the weights, and operations
// of the linear layers ÷ int16 multiply peak. The share is floor ÷ measured. Rounds of the cases
// are interleaved; printed are medians. --log appends one line of JSON.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/model_tensors.h"
#include "common/status.h"
#include "common/table_digest.h"
#include "glog/logging.h"
#include "tests/bench/machine_limits.h"
#include "worker/device/cpu_backend.h"
#include "worker/device/machine.h"
#include "worker/exec/executor.h"
#include "worker/model/model.h"

namespace octavo {
namespace {

constexpr uint32_t kContext = 64;
constexpr uint32_t kDecodeSteps = 32;
constexpr uint32_t kPromptTokens = 512;
constexpr uint32_t kDefaultRounds = 7;

struct MachineLimits {
  double read_bytes_per_second = 0;  // over a buffer the size of the weights
  double int16_ops_per_second = 0;   // 0 where the machine lacks AVX2
};

// What a step reads and computes.
struct Work {
  double weight_bytes = 0;        // of all matrices
  double layer_ops = 0;           // of the layers' products, a token
  double output_ops = 0;          // of the output matrix, a row of logits
  double kv_bytes_per_token = 0;  // of all layers
};

Work WorkOf(const Model& model) {
  const ModelTensors tensors = *FindModelTensors(model.file(), model.config());
  Work work;
  const auto product = [&](const GgufTensor& tensor, double& ops) {
    work.weight_bytes += static_cast<double>(tensor.data.size());
    ops += 2.0 * static_cast<double>(tensor.rows) * static_cast<double>(tensor.columns);
  };
  for (const LayerTensors& layer : tensors.layers) {
    for (const GgufTensor* tensor : {layer.query, layer.key, layer.value, layer.attention_output,
                                     layer.ffn_gate, layer.ffn_up, layer.ffn_down}) {
      product(*tensor, work.layer_ops);
    }
  }
  product(*tensors.output, work.output_ops);
  work.kv_bytes_per_token =
      static_cast<double>(model.MakeKvLayout(16, KvType::kF16).bytes_per_token());
  return work;
}

// Requests that run from a fresh state: `batch` prompts of `prompt` tokens, prefilled, then decoded
// for `decodes` steps.
class Run {
 public:
  Run(Executor& executor, uint32_t vocab_size, uint64_t& step)
      : executor_(executor), vocab_size_(vocab_size), step_(step) {}

  // Seconds of the timed part: the prefill where `decodes` is 0, else the decode steps.
  double Seconds(uint32_t batch, uint32_t prompt, uint32_t decodes) {
    std::mt19937 random(batch * 1000 + prompt);
    lengths_.assign(batch, 0);
    digest_ = 0;
    next_block_ = 0;
    const uint32_t whole = std::max(1u, std::min(batch, executor_.max_tokens_per_step() / prompt));
    double prefill = 0;
    for (uint32_t first = 0; first < batch; first += whole) {
      StepPlan plan = Empty();
      plan.resets_state = first == 0;
      for (uint32_t i = first; i < std::min(batch, first + whole); ++i) {
        plan.starts.push_back({.sequence_id = SequenceId(i + 1), .prompt_token_count = prompt});
        plan.starts.back().sampling.temperature = 0;
        AddRow(plan, i, prompt, false);
        for (uint32_t t = 0; t < prompt; ++t)
          plan.token_ids.push_back(static_cast<TokenId>(random() % vocab_size_));
      }
      prefill += Timed([&] { Submit(plan), Drain(); });
    }
    if (decodes == 0) return prefill;
    return Timed([&] {
      for (uint32_t d = 0; d < decodes; ++d) {
        StepPlan plan = Empty();
        for (uint32_t i = 0; i < batch; ++i) AddRow(plan, i, 1, true);
        Submit(plan);
      }
      Drain();
    });
  }

 private:
  template <typename F>
  static double Timed(const F& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  StepPlan Empty() {
    return {.epoch = Epoch(0), .step = StepNumber(++step_), .layer_groups = {LayerGroupChange{}}};
  }

  void AddRow(StepPlan& plan, uint32_t i, uint32_t count, bool fed) {
    const SequenceId id(i + 1);
    LayerGroupChange& change = plan.layer_groups[0];
    plan.rows.push_back({.sequence_id = id,
                         .first_position = lengths_[i],
                         .token_count = count,
                         .samples = true,
                         .feeds_sampled = fed});
    const uint32_t before = executor_.layout().BlocksFor(lengths_[i]);
    lengths_[i] += count;
    const uint32_t after = executor_.layout().BlocksFor(lengths_[i]);
    change.new_block_counts.push_back(after - before);
    for (uint32_t index = before; index < after; ++index) {
      change.new_blocks.push_back(BlockId(next_block_++));
      digest_ += EntryDigest(id, index, change.new_blocks.back());
    }
  }

  void Submit(StepPlan& plan) {
    plan.layer_groups[0].digest = digest_;
    auto promise = std::make_shared<std::promise<absl::Status>>();
    in_flight_.push_back(promise->get_future());
    executor_.Submit(plan, [promise](absl::StatusOr<StepResult> result) {
      promise->set_value(result.status());
    });
    if (in_flight_.size() == kStepsInFlight) Take();
  }
  void Drain() {
    while (!in_flight_.empty()) Take();
  }
  void Take() {
    const absl::Status status = in_flight_.front().get();
    CHECK(status.ok()) << status;
    in_flight_.pop_front();
  }

  Executor& executor_;
  uint32_t vocab_size_;
  uint64_t& step_;
  std::vector<uint32_t> lengths_;
  uint64_t digest_ = 0;
  uint32_t next_block_ = 0;
  std::deque<std::future<absl::Status>> in_flight_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  std::string mode;
  std::string model;
  uint32_t threads = 0;
  std::string isa = "auto";
  uint32_t rounds = kDefaultRounds;
  std::string log;
};

struct Case {
  std::string name;
  uint32_t batch;
  uint32_t prompt;
  uint32_t decodes;
  double tokens;           // of the timed part
  double bandwidth_floor;  // seconds of the timed part
  double compute_floor;
  std::vector<double> seconds = {};
};

std::vector<Case> CasesOf(const Options& options, const Work& work, const MachineLimits& limits) {
  std::vector<Case> cases;
  const auto add = [&](std::string name, uint32_t batch, uint32_t prompt, uint32_t decodes,
                       double tokens, double bytes, double ops) {
    const double compute = limits.int16_ops_per_second > 0 ? ops / limits.int16_ops_per_second : 0;
    cases.push_back({std::move(name), batch, prompt, decodes, tokens,
                     bytes / limits.read_bytes_per_second, compute});
  };
  if (options.mode == "decode") {
    for (uint32_t batch : {1u, 8u, 32u}) {
      const double tokens = 1.0 * batch * kDecodeSteps;
      const double mean_context = kContext + (kDecodeSteps + 1) / 2.0;
      const double bytes =
          kDecodeSteps * work.weight_bytes + tokens * mean_context * work.kv_bytes_per_token;
      add(absl::StrCat("decode, batch ", batch), batch, kContext, kDecodeSteps, tokens, bytes,
          tokens * (work.layer_ops + work.output_ops));
    }
  } else {
    // Keys and values of a prompt are read at least once.
    add(absl::StrCat("prefill, prompt ", kPromptTokens), 1, kPromptTokens, 0, kPromptTokens,
        work.weight_bytes + kPromptTokens * work.kv_bytes_per_token,
        kPromptTokens * work.layer_ops + work.output_ops);
  }
  return cases;
}

void Report(const Options& options, const Backend& backend, const Model& model,
            const MachineLimits& limits, const std::vector<Case>& cases) {
  std::printf("%s, %s\n", model.config().name.c_str(), backend.Describe().c_str());
  std::printf("machine: reads %.1f GB/s, int16 multiply peak %.0f GOP/s\n\n",
              limits.read_bytes_per_second / 1e9, limits.int16_ops_per_second / 1e9);
  std::printf("%-22s %10s %9s %10s %10s %8s\n", "", "tok/s", "ms/step", "bandwidth", "multiply",
              "of floor");
  std::string json;
  for (const Case& c : cases) {
    const double seconds = Median(c.seconds);
    const double steps = c.decodes == 0 ? 1 : c.decodes;
    const double share = std::max(c.bandwidth_floor, c.compute_floor) / seconds;
    std::printf("%-22s %10.1f %9.2f %7.2f ms %7.2f ms %7.0f%%\n", c.name.c_str(),
                c.tokens / seconds, 1e3 * seconds / steps, 1e3 * c.bandwidth_floor / steps,
                1e3 * c.compute_floor / steps, 100 * share);
    absl::StrAppend(
        &json, json.empty() ? "" : ",",
        absl::StrFormat(
            "{\"case\":\"%s\",\"tok_s\":%.1f,\"of_floor\":%.3f,\"best_ms\":%.3f,\"worst_ms\":%.3f}",
            c.name, c.tokens / seconds, share,
            1e3 * *std::min_element(c.seconds.begin(), c.seconds.end()) / steps,
            1e3 * *std::max_element(c.seconds.begin(), c.seconds.end()) / steps));
  }
  std::printf(
      "\nThe floor of a step is the slower of the two: bytes of weights, keys and values at the "
      "read bandwidth,\n"
      "operations of the linear layers at the multiply peak. Medians of %u rounds.\n",
      options.rounds);
  if (options.log.empty()) return;
  std::ofstream(options.log, std::ios::app) << absl::StrFormat(
      "{\"bench\":\"%s\",\"unix_s\":%d,\"device\":\"%s\",\"read_gb_s\":%.2f,\"int16_gop_s\":%.1f,"
      "\"cases\":[%s]}\n",
      options.mode,
      std::chrono::duration_cast<std::chrono::seconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count(),
      backend.Describe(), limits.read_bytes_per_second / 1e9, limits.int16_ops_per_second / 1e9,
      json);
}

absl::Status RunBench(const Options& options) {
  CpuBackendOptions backend_options{.threads = options.threads};
  OCTAVO_ASSIGN_OR_RETURN(backend_options.isa, ParseIsa(options.isa));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                          CreateCpuBackend(std::move(backend_options)));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(options.model));
  OCTAVO_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> model,
      Model::Load(std::move(file), *backend, {.max_tokens_per_step = kPromptTokens}));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor,
                          Executor::Create(*model, {.num_blocks = 256, .max_sequences = 64}));

  const Work work = WorkOf(*model);
  const uint32_t threads = options.threads == 0 ? AvailableCores() : options.threads;
  const MachineLimits limits{
      .read_bytes_per_second =
          bench::ReadBandwidth(static_cast<size_t>(work.weight_bytes), static_cast<int>(threads)),
      .int16_ops_per_second = bench::Int16MultiplyPeak(static_cast<int>(threads))};
  std::vector<Case> cases = CasesOf(options, work, limits);
  uint64_t step = 0;
  Run run(*executor, model->config().vocab_size, step);
  for (uint32_t round = 0; round <= options.rounds; ++round) {  // round 0 warms up
    for (Case& c : cases) {
      const double seconds = run.Seconds(c.batch, c.prompt, c.decodes);
      if (round > 0) c.seconds.push_back(seconds);
    }
  }
  Report(options, *backend, *model, limits, cases);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  const char* model = std::getenv("OCTAVO_MODEL");
  const char* home = std::getenv("HOME");
  options.model = model != nullptr
                      ? model
                      : absl::StrCat(home != nullptr ? home : "",
                                     "/.cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (argc >= 2) options.mode = argv[1];
  bool valid = options.mode == "decode" || options.mode == "prefill";
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) {
      valid = false;
    } else if (name == "--model") {
      options.model = argv[i + 1];
    } else if (name == "--isa") {
      options.isa = argv[i + 1];
    } else if (name == "--log") {
      options.log = argv[i + 1];
    } else if (name == "--rounds") {
      valid = valid && absl::SimpleAtoi(argv[i + 1], &options.rounds) && options.rounds > 0;
    } else if (name == "--threads") {
      valid = valid && absl::SimpleAtoi(argv[i + 1], &options.threads);
    } else {
      valid = false;
    }
  }
  if (!valid) {
    std::fprintf(stderr,
                 "usage: step_bench decode|prefill [--model FILE] [--threads N] [--isa "
                 "auto|scalar|avx2] [--log FILE]\n");
    return 2;
  }
  const absl::Status status = RunBench(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "step_bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }
