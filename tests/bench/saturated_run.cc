#include "tests/bench/saturated_run.h"

#include <utility>
#include <variant>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "tests/bench/recorded_workload.h"

ABSL_FLAG(bool, first_turns, false,
          "Leave out the requests that go on from the one above them in the trace.");

namespace octavo {

using cli::RequestLength;

absl::StatusOr<std::vector<RequestLength>> ReadRequests(uint32_t max_model_len, size_t count) {
  if (count == 0) return absl::InvalidArgumentError("--requests is 0; it must be at least 1");
  if (max_model_len > kPoolTokens) {
    return absl::InvalidArgumentError(absl::StrCat("--max_model_len is ", max_model_len,
                                                   "; the pool has ", kPoolTokens, " tokens"));
  }
  const absl::StatusOr<std::vector<RequestLength>> trace =
      cli::ReadTraceFile(absl::GetFlag(FLAGS_trace));
  if (!trace.ok()) return trace.status();
  const bool first_turns = absl::GetFlag(FLAGS_first_turns);
  std::vector<RequestLength> requests;
  RequestLength above;
  for (const RequestLength& request : *trace) {
    const bool continues =
        above.output_tokens > 0 &&
        request.prompt_tokens >= uint64_t{above.prompt_tokens} + above.output_tokens;
    above = request;
    const bool fits = request.prompt_tokens >= 1 && request.output_tokens >= 1 &&
                      uint64_t{request.prompt_tokens} + request.output_tokens <= max_model_len;
    if (fits && !(first_turns && continues) && requests.size() < count) requests.push_back(request);
  }
  if (!requests.empty()) return requests;
  return absl::InvalidArgumentError(
      absl::StrCat("none of the ", trace->size(), " requests of ", absl::GetFlag(FLAGS_trace),
                   " has a prompt and an answer of at most ", max_model_len, " tokens together"));
}

void RunSaturated(const SaturatedRun& run, std::span<const RequestLength> requests,
                  const std::function<void(const Engine&, const StepPlan&)>& observe) {
  EngineOptions options = run.options;
  options.max_sequences = 1024;
  options.max_steps_in_flight = 1;
  options.max_waiting_requests = static_cast<uint32_t>(requests.size());
  options.max_waiting_tokens = uint64_t{1} << 40;
  Engine engine(options);
  const KvLayout layout{
      .block_size = run.block_size, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  const absl::Time now = absl::UnixEpoch();
  std::vector<Action> actions;
  engine.Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{layout, kPoolTokens / run.block_size}}}, now,
                actions);
  uint64_t id = 0;
  for (const RequestLength& request : requests) {
    SubmitRequest submit = run.form;
    submit.request_id = RequestId(++id);
    submit.prompt.assign(request.prompt_tokens, static_cast<TokenId>(id));
    submit.max_tokens = request.output_tokens;
    engine.Handle(std::move(submit), now, actions);
  }
  actions.clear();
  while (engine.PlanNext(now, actions)) {
    const StepPlan plan = std::get<SendPlan>(std::move(actions.back())).plan;
    observe(engine, plan);
    actions.clear();
    engine.Handle(StepCompleted{run.answer(plan)}, now, actions);
    actions.clear();
  }
  CHECK(engine.idle()) << "the engine stopped with requests left";
}

}  // namespace octavo
