#include "tools/octavo/capacity/capacity.h"

#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/byte_size.h"
#include "common/flags.h"
#include "common/status.h"
#include "tools/octavo/capacity/capacity_plan.h"
#include "tools/octavo/capacity/model_shape.h"
#include "tools/octavo/capacity/policy_table.h"

ABSL_DECLARE_FLAG(std::string, model);
ABSL_FLAG(std::string, config, "", "A Hugging Face config.json, instead of --model.");
ABSL_FLAG(octavo::ByteSize, memory, {}, "Memory of each device, as 80GiB.");
ABSL_FLAG(double, memory_utilization, octavo::kDefaultMemoryUtilization,
          "Share of --memory that may be used.");
ABSL_FLAG(octavo::ByteSize, kv_memory, {},
          "Memory of each device's pool itself; --memory is not asked.");
ABSL_FLAG(octavo::ByteSize, weights, {}, "Bytes of all weights; 0: as the model says.");
ABSL_FLAG(octavo::ByteSize, activations, {1ull << 30},
          "Bytes a device needs beside weights and pool.");
ABSL_FLAG(std::string, kv_dtype, "f16", "KV cache: f16, bf16, fp8, or int8 (its scales counted).");
ABSL_FLAG(uint32_t, tensor_parallel, 1, "Devices that share the model.");
ABSL_FLAG(uint32_t, max_sequences, 256, "Most requests at once.");
ABSL_FLAG(uint32_t, tokens_per_request, 0,
          "Prompt and output of a usual request; 0: the mean of --lengths or --trace, else "
          "--max_model_len.");
ABSL_FLAG(uint32_t, block_size, 16, "Tokens a block holds.");
ABSL_FLAG(uint32_t, max_model_len, 0,
          "Tokens of the longest request; 0: the model's context, else the longest length.");
ABSL_FLAG(std::vector<std::string>, lengths, {}, "Final lengths of requests in tokens, as 40,128.");
ABSL_FLAG(std::string, trace, "",
          "A recorded workload instead of --lengths: CSV with input_tokens and output_tokens, or "
          "JSON lines with input_length and output_length; gzip or not.");
ABSL_FLAG(uint32_t, num_blocks, 0, "Blocks of the pool that --lengths or --trace is held against.");
ABSL_FLAG(std::string, contiguous_allocator, "buddy",
          "How policies that reserve find room: buddy (as in the PagedAttention paper) or "
          "first_fit.");

namespace octavo::cli {

const char kCapacityAbout[] =
    "octavo capacity: what a KV pool would hold, offline.\n"
    "\n"
    "  octavo capacity --lengths 40,128,300 --num_blocks 128 --max_model_len 512\n"
    "      how many requests each KV policy admits, in this order, until one does not fit\n"
    "  octavo capacity --config config.json --memory 80GiB --kv_dtype bf16 --tensor_parallel 4\n"
    "      bytes a token, blocks, tokens, requests at once, what bounds them, what would help\n";

namespace {

absl::StatusOr<std::vector<RequestLength>> Requests() {
  const std::vector<std::string> lengths = absl::GetFlag(FLAGS_lengths);
  const std::string trace = absl::GetFlag(FLAGS_trace);
  if (!lengths.empty() && !trace.empty())
    return absl::InvalidArgumentError("give --lengths or --trace, not both");
  if (!trace.empty()) return ReadTraceFile(trace);
  std::vector<RequestLength> requests;
  for (const std::string& text : lengths) {
    uint32_t tokens = 0;
    if (!absl::SimpleAtoi(text, &tokens) || tokens == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--lengths has \"", text, "\"; it must be whole numbers of tokens, as 40,128"));
    }
    requests.push_back({.output_tokens = tokens});
  }
  return requests;
}

uint64_t TotalTokens(const std::vector<RequestLength>& requests) {
  uint64_t total = 0;
  for (const auto& request : requests)
    total += uint64_t{request.prompt_tokens} + request.output_tokens;
  return total;
}

uint32_t LongestTokens(const std::vector<RequestLength>& requests) {
  uint64_t longest = 0;
  for (const auto& request : requests)
    longest = std::max(longest, uint64_t{request.prompt_tokens} + request.output_tokens);
  return static_cast<uint32_t>(std::min<uint64_t>(longest, UINT32_MAX));
}

absl::StatusOr<ModelShape> Model() {
  const std::string config = absl::GetFlag(FLAGS_config);
  if (config.empty()) return ReadGgufShape(absl::GetFlag(FLAGS_model));
  if (!absl::GetFlag(FLAGS_model).empty())
    return absl::InvalidArgumentError("give --model or --config, not both");
  std::ifstream in(config);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return absl::NotFoundError("cannot read --config " + config);
  return ParseConfigJson(text.str());
}

absl::StatusOr<Deployment> DeploymentFor(const ModelShape& model,
                                         const std::vector<RequestLength>& requests) {
  Deployment deployment{.memory_bytes = absl::GetFlag(FLAGS_memory).bytes,
                        .memory_utilization = absl::GetFlag(FLAGS_memory_utilization),
                        .weight_bytes = absl::GetFlag(FLAGS_weights).bytes,
                        .activation_bytes = absl::GetFlag(FLAGS_activations).bytes,
                        .block_size = absl::GetFlag(FLAGS_block_size),
                        .tensor_parallel = absl::GetFlag(FLAGS_tensor_parallel),
                        .max_sequences = absl::GetFlag(FLAGS_max_sequences),
                        .max_model_len = absl::GetFlag(FLAGS_max_model_len),
                        .tokens_per_request = absl::GetFlag(FLAGS_tokens_per_request)};
  OCTAVO_ASSIGN_OR_RETURN(deployment.kv_dtype, ParseKvDtype(absl::GetFlag(FLAGS_kv_dtype)));
  if (deployment.max_model_len == 0) deployment.max_model_len = model.context_length;
  if (deployment.tokens_per_request == 0) {
    deployment.tokens_per_request =
        requests.empty() ? deployment.max_model_len
                         : static_cast<uint32_t>((TotalTokens(requests) + requests.size() - 1) /
                                                 requests.size());
  }
  if (deployment.weight_bytes == 0) deployment.weight_bytes = model.weight_bytes;
  if (const ByteSize pool = absl::GetFlag(FLAGS_kv_memory); pool.bytes > 0) {
    deployment.kv_memory_bytes = pool.bytes;
  } else if (deployment.memory_bytes == 0) {
    return absl::InvalidArgumentError(
        "--memory (of each device) or --kv_memory (of its pool) is needed, as 80GiB");
  } else if (deployment.weight_bytes == 0) {
    return absl::InvalidArgumentError(
        "the config is quantised (quantization_config): say what its weights take, as --weights "
        "35GiB");
  }
  return deployment;
}

void PrintPlan(const ModelShape& model, const Deployment& deployment, const Capacity& plan) {
  const KvDtype& dtype = deployment.kv_dtype;
  std::cout << absl::StrFormat(
      "model        %s, %u layers, %u query heads, %u KV heads of %u, context %u, %.2f B "
      "parameters\n",
      model.architecture, model.layer_count, model.query_head_count, model.kv_head_count,
      model.head_dim, model.context_length, static_cast<double>(model.parameter_count) / 1e9);
  std::cout << absl::StrFormat("a token      %u bytes of KV in %s", plan.bytes_per_token,
                               dtype.name);
  if (deployment.tensor_parallel > 1) {
    std::cout << absl::StrFormat("; %u on each of %u devices", plan.rank_bytes_per_token,
                                 deployment.tensor_parallel);
  }
  std::cout << absl::StrFormat("\na request    %u tokens at full length: %s of KV\n",
                               deployment.max_model_len,
                               FormatBytes(plan.bytes_per_token * deployment.max_model_len));
  std::cout << "a device     ";
  if (!deployment.kv_memory_bytes) {
    std::cout << absl::StrFormat(
        "%s x %.2f - weights %s - activations %s = ", FormatBytes(deployment.memory_bytes),
        deployment.memory_utilization, FormatBytes(plan.rank_weight_bytes),
        FormatBytes(deployment.activation_bytes));
  }
  std::cout << absl::StrFormat("a pool of %s\n", FormatBytes(plan.pool_bytes));
  std::cout << absl::StrFormat("the pool     %u blocks of %u: %u tokens\n", plan.block_count,
                               deployment.block_size, plan.token_count);
  std::cout << absl::StrFormat("at once      %u requests at full length (%.2f in the blocks)",
                               plan.full_requests, plan.full_concurrency);
  if (deployment.tokens_per_request != deployment.max_model_len) {
    std::cout << absl::StrFormat(", %u of %u tokens", plan.usual_requests,
                                 deployment.tokens_per_request);
  }
  std::cout << absl::StrFormat("\nbound by     %s\n", CapacityBoundName(plan.bound));
  const std::vector<CapacityAdvice> advice = AdviseCapacity(model, deployment, plan);
  for (size_t i = 0; i < advice.size(); ++i) {
    std::cout << absl::StrFormat("%-13s%s: %u requests at once\n", i == 0 ? "would help" : "",
                                 advice[i].change, advice[i].usual_requests);
  }
}

absl::Status PrintPolicies(const std::vector<RequestLength>& requests, const PolicyPool& pool) {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<PolicyRow> rows, ComparePolicies(requests, pool));
  std::cout << absl::StrFormat(
      "%u requests in this order, %u blocks of %u, at most %u tokens each\n", requests.size(),
      pool.block_count, pool.block_size, pool.max_model_len);
  std::cout << absl::StrFormat("%-14s%10s%14s%13s%10s%14s\n", "policy", "admitted", "blocks taken",
                               "blocks used", "tokens", "slots used");
  for (const PolicyRow& row : rows) {
    const double slots = static_cast<double>(pool.block_count) * pool.block_size;
    std::cout << absl::StrFormat("%-14s%10u%14u%13u%10u%12.1f %%\n", KvPolicyName(row.policy),
                                 row.admitted, row.taken_blocks, row.used_blocks, row.tokens,
                                 100.0 * static_cast<double>(row.tokens) / slots);
  }
  return absl::OkStatus();
}

absl::Status Show(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    return absl::InvalidArgumentError("unexpected argument \"" + arguments[0] +
                                      "\"; see octavo capacity --help");
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<RequestLength> requests, Requests());
  PolicyPool pool{.block_count = absl::GetFlag(FLAGS_num_blocks),
                  .block_size = absl::GetFlag(FLAGS_block_size),
                  .max_model_len = absl::GetFlag(FLAGS_max_model_len)};
  OCTAVO_ASSIGN_OR_RETURN(pool.allocator,
                          ParseContiguousAllocatorKind(absl::GetFlag(FLAGS_contiguous_allocator)));
  const bool has_model =
      !absl::GetFlag(FLAGS_config).empty() || !absl::GetFlag(FLAGS_model).empty();
  if (!has_model && requests.empty()) {
    return absl::InvalidArgumentError(
        "nothing to plan for: give --model or --config, --lengths or --trace, or both; see octavo "
        "capacity --help");
  }
  if (has_model) {
    OCTAVO_ASSIGN_OR_RETURN(const ModelShape model, Model());
    OCTAVO_ASSIGN_OR_RETURN(const Deployment deployment, DeploymentFor(model, requests));
    OCTAVO_ASSIGN_OR_RETURN(const Capacity plan, PlanCapacity(model, deployment));
    PrintPlan(model, deployment, plan);
    if (pool.block_count == 0)
      pool.block_count = static_cast<uint32_t>(std::min<uint64_t>(plan.block_count, UINT32_MAX));
    pool.max_model_len = deployment.max_model_len;
    if (!requests.empty()) std::cout << "\n";
  }
  if (requests.empty()) return absl::OkStatus();
  if (pool.max_model_len == 0) pool.max_model_len = LongestTokens(requests);
  return PrintPolicies(requests, pool);
}

}  // namespace

int ShowCapacity(const std::vector<std::string>& arguments) {
  const absl::Status shown = Show(arguments);
  if (shown.ok()) return kExitOk;
  std::cerr << "octavo capacity: " << shown.message() << "\n";
  return absl::IsResourceExhausted(shown) ? 1 : kExitBadConfiguration;
}

}  // namespace octavo::cli
