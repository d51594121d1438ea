// What the prefix cache reuses of a recorded workload: the production engine, one request at a
// time, in the order of the trace, with a worker that answers every step at once. A request's
// prompt is computed, its blocks are given up, the least recently used are evicted. Reused is a
// prompt token whose KV was found. `tools/dev bench prefix`.
//
//   prefix_bench --trace FILE [--name NAME] [--published BLOCKS:PERCENT,…] [--log FILE] [--quick]
//   prefix_bench --conversations TURNS [--quick]     (a workload made up on the spot)
//
// FILE says which prompts begin alike by an id for every 512 tokens (trace_file.h); sizes are in
// blocks of as many, and `unlimited` is as many as the trace has ids. A block of the engine holds
// at most 256 tokens, so one of them stands for two of the trace's: the blocks are the trace's, and
// hits are exact to a token.
//
// Beside it: a plain LRU list of the ids, to say what any correct cache finds; what is published;
// and, for information and not with --quick, the same memory in blocks of 16. A figure may differ
// from the plain list's and from the published one by 0.5 points, or the exit code is 1. Beyond
// chance they differ by the last token of a prompt that is sent twice, which the engine computes
// again.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/random.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "scheduler/core/engine.h"
#include "tests/bench/answer_at_once.h"
#include "tests/bench/recorded_workload.h"
#include "tools/octavo/trace_file.h"

ABSL_FLAG(std::string, published, "", "Shares that are known, as BLOCKS:PERCENT,…");
ABSL_FLAG(uint32_t, conversations, 0,
          "Instead of a trace: so many turns of conversations made up on the spot.");
ABSL_FLAG(bool, quick, false, "Without what is there for information.");

namespace octavo {
namespace {

using cli::kTraceBlockTokens;
using cli::RequestPrefix;
using Trace = std::vector<RequestPrefix>;
using Published = std::map<uint32_t, double>;  // percent, by size

constexpr uint32_t kUnlimited = 0;
constexpr uint32_t kSizes[] = {kUnlimited, 50'000, 30'000, 10'000, 3'000, 1'000, 300};
constexpr double kMostPoints = 0.5;

// How the engine sees the trace: so many of its tokens are one of the engine's.
struct Scale {
  uint32_t block_size;
  uint32_t trace_tokens_per_token;

  uint32_t blocks_per_trace_block() const {
    return kTraceBlockTokens / (block_size * trace_tokens_per_token);
  }
};
constexpr Scale kWholeBlocks = {.block_size = 256, .trace_tokens_per_token = 2};
constexpr Scale kSmallBlocks = {.block_size = 16, .trace_tokens_per_token = 1};

std::vector<TokenId> PromptOf(const RequestPrefix& request, Scale scale) {
  const uint32_t count =
      (request.prompt_tokens + scale.trace_tokens_per_token - 1) / scale.trace_tokens_per_token;
  const uint32_t tokens_per_id = kTraceBlockTokens / scale.trace_tokens_per_token;
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i)
    tokens[i] = static_cast<TokenId>(request.block_ids[i / tokens_per_id]);
  return tokens;
}

std::unique_ptr<Engine> MakeEngine(uint32_t block_count, uint32_t block_size) {
  EngineOptions options;
  options.context_length = 1 << 20;
  options.max_steps_in_flight = 1;
  auto engine = std::make_unique<Engine>(options);
  const KvLayout layout{
      .block_size = block_size, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  std::vector<Action> actions;
  engine->Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, block_count}}}, absl::UnixEpoch(),
                 actions);
  return engine;
}

// Runs one request to its end and returns how many of its tokens were found.
uint32_t CachedTokens(Engine& engine, RequestId id, std::vector<TokenId> prompt) {
  uint32_t cached = 0;
  bool finished = false;
  std::vector<Action> actions;
  engine.Handle(SubmitRequest{.request_id = id, .prompt = std::move(prompt), .max_tokens = 1},
                absl::UnixEpoch(), actions);
  while (engine.PlanNext(absl::UnixEpoch(), actions)) {
    const StepPlan plan = std::get<SendPlan>(std::move(actions.back())).plan;
    actions.pop_back();
    engine.Handle(StepCompleted{AnswerAtOnce(plan)}, absl::UnixEpoch(), actions);
    for (const Action& action : actions) {
      if (const auto* admitted = std::get_if<RequestAdmitted>(&action))
        cached = admitted->cached_token_count;
      if (const auto* end = std::get_if<RequestFinished>(&action)) finished = end->request_id == id;
    }
    actions.clear();
  }
  CHECK(finished) << "request " << id.value() << " did not finish";
  return cached;
}

// So many turns of conversations: each turn either begins one, after one of eight system prompts,
// or sends an earlier prompt again with more behind it, a recent one rather than an old one.
Trace Conversations(uint32_t turns) {
  Trace trace;
  uint32_t draws = 0, last_id = 0;
  const auto draw = [&draws](uint32_t limit) {
    return static_cast<uint32_t>(Mix64(draws++) % limit);
  };
  Trace system_prompts(8);
  for (RequestPrefix& prompt : system_prompts) {
    prompt.prompt_tokens = kTraceBlockTokens * (1 + draw(6));
    while (prompt.block_ids.size() * kTraceBlockTokens < prompt.prompt_tokens)
      prompt.block_ids.push_back(++last_id);
  }
  while (trace.size() < turns) {
    const uint32_t age = draw(1 + draw(1 + draw(turns)));
    RequestPrefix request =
        age < trace.size() ? trace[trace.size() - 1 - age] : system_prompts[draw(8)];
    // A block that was part-filled is another one when more is in it.
    request.block_ids.resize(request.prompt_tokens / kTraceBlockTokens);
    request.prompt_tokens += 1 + draw(8 * kTraceBlockTokens);
    if (request.prompt_tokens > 128 * kTraceBlockTokens) continue;
    while (request.block_ids.size() * kTraceBlockTokens < request.prompt_tokens)
      request.block_ids.push_back(++last_id);
    trace.push_back(std::move(request));
  }
  return trace;
}

uint64_t PromptTokens(const Trace& trace) {
  uint64_t count = 0;
  for (const RequestPrefix& request : trace) count += request.prompt_tokens;
  return count;
}

// Percent of the prompt tokens.
double EngineShare(const Trace& trace, uint32_t size, Scale scale) {
  const auto engine = MakeEngine(size * scale.blocks_per_trace_block(), scale.block_size);
  uint64_t reused = 0;
  uint64_t id = 0;
  for (const RequestPrefix& request : trace) {
    reused += uint64_t{scale.trace_tokens_per_token} *
              CachedTokens(*engine, RequestId(++id), PromptOf(request, scale));
  }
  const absl::Status status = engine->CheckInvariants();
  CHECK(status.ok()) << status;
  return 100.0 * static_cast<double>(reused) / static_cast<double>(PromptTokens(trace));
}

// A list of ids, the most recently used in front; a prompt's first block more so than its last.
double PlainShare(const Trace& trace, uint32_t size) {
  std::list<uint32_t> order;
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> places;
  uint64_t reused = 0;
  for (const RequestPrefix& request : trace) {
    uint32_t found = 0;
    while (found < request.block_ids.size() && places.contains(request.block_ids[found])) ++found;
    reused += std::min<uint64_t>(uint64_t{found} * kTraceBlockTokens, request.prompt_tokens);
    for (auto id = request.block_ids.rbegin(); id != request.block_ids.rend(); ++id) {
      if (const auto place = places.find(*id); place != places.end()) order.erase(place->second);
      order.push_front(*id);
      places[*id] = order.begin();
    }
    while (order.size() > size) {
      places.erase(order.back());
      order.pop_back();
    }
  }
  return 100.0 * static_cast<double>(reused) / static_cast<double>(PromptTokens(trace));
}

uint32_t DistinctIds(const Trace& trace) {
  std::unordered_set<uint32_t> ids;
  for (const RequestPrefix& request : trace)
    ids.insert(request.block_ids.begin(), request.block_ids.end());
  return static_cast<uint32_t>(ids.size());
}

bool Compare(const std::string& name, const Trace& trace, const Published& published_shares) {
  const bool quick = absl::GetFlag(FLAGS_quick);
  const uint32_t distinct = DistinctIds(trace);
  size_t longest = 0;
  for (const RequestPrefix& request : trace) longest = std::max(longest, request.block_ids.size());
  std::printf("%s: %zu requests, %llu prompt tokens in %u different blocks of %u\n", name.c_str(),
              trace.size(), static_cast<unsigned long long>(PromptTokens(trace)), distinct,
              kTraceBlockTokens);
  std::printf("%10s%11s%12s%12s%8s%14s\n", "blocks", "reused", "plain LRU", "published", "",
              quick ? "" : "blocks of 16");
  nlohmann::json rows;
  bool holds = true;
  for (const uint32_t size : kSizes) {
    if (size != kUnlimited && size <= longest) {
      std::printf("%10u  the longest prompt has %zu blocks\n", size, longest);
      continue;
    }
    // One more: the block a prompt sent twice is copied to.
    const uint32_t blocks = size == kUnlimited ? distinct + 1 : size;
    const double reused = EngineShare(trace, blocks, kWholeBlocks);
    const double plain = PlainShare(trace, blocks);
    bool close = std::abs(reused - plain) <= kMostPoints;
    nlohmann::json row = {{"blocks", blocks}, {"reused", reused}, {"plain", plain}};
    std::string published = "-", small;
    if (const auto it = published_shares.find(size); it != published_shares.end()) {
      close &= std::abs(reused - it->second) <= kMostPoints;
      row["published"] = it->second;
      published = absl::StrFormat("%.1f %%", it->second);
    }
    if (!quick) {
      row["blocks_of_16"] = EngineShare(trace, blocks, kSmallBlocks);
      small = absl::StrFormat("%.2f %%", row["blocks_of_16"].get<double>());
    }
    holds &= close;
    rows.push_back(row);
    const std::string label = size == kUnlimited ? "unlimited" : std::to_string(size);
    std::printf("%10s%9.2f %%%10.2f %%%12s%8s%14s\n", label.c_str(), reused, plain,
                published.c_str(), close ? "PASS" : "FAIL", small.c_str());
    std::fflush(stdout);
  }
  AppendToLog({{"bench", "prefix"},
               {"workload", name},
               {"requests", trace.size()},
               {"trace_block_tokens", kTraceBlockTokens},
               {"rows", rows}});
  return holds;
}

absl::StatusOr<Published> ParsePublished(const std::string& text) {
  Published shares;
  for (const std::string& pair :
       std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty()))) {
    const std::vector<std::string> parts = absl::StrSplit(pair, ':');
    uint32_t size = kUnlimited;
    if (parts.size() != 2 || (parts[0] != "unlimited" && !absl::SimpleAtoi(parts[0], &size)) ||
        std::find(std::begin(kSizes), std::end(kSizes), size) == std::end(kSizes) ||
        !absl::SimpleAtod(parts[1], &shares[size])) {
      return absl::InvalidArgumentError(
          absl::StrCat("--published holds \"", pair,
                       "\"; it takes BLOCKS:PERCENT, where BLOCKS is unlimited or one of the "
                       "sizes that are printed"));
    }
  }
  return shares;
}

absl::StatusOr<bool> Run() {
  const absl::StatusOr<Published> published = ParsePublished(absl::GetFlag(FLAGS_published));
  if (!published.ok()) return published.status();
  const std::string path = absl::GetFlag(FLAGS_trace);
  const uint32_t turns = absl::GetFlag(FLAGS_conversations);
  if (path.empty() == (turns == 0)) {
    return absl::InvalidArgumentError("takes either --trace or --conversations");
  }
  if (turns > 0) return Compare("conversations", Conversations(turns), *published);
  const absl::StatusOr<Trace> trace = cli::ReadPrefixTraceFile(path);
  if (!trace.ok()) return trace.status();
  return Compare(absl::GetFlag(FLAGS_name), *trace, *published);
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::RunBenchmark(argc, argv, "What the prefix cache reuses of a recorded workload.",
                              octavo::Run);
}
