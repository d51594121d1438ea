#include "tools/octavo/capacity/capacity_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/kv_layout.h"
#include "common/memory_budget.h"
#include "common/status.h"

namespace octavo::cli {
namespace {

constexpr double kInt4Bits = 4.5;  // of a weight: 4 and a share of its group's scale

uint64_t CeilDivide(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

absl::Status OutOfRange(const char* field, uint64_t value, const std::string& limit) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", limit));
}

// Bytes of one token with `kv_heads` KV heads in each layer.
uint64_t BytesPerToken(const ModelShape& model, const KvDtype& dtype, uint64_t kv_heads) {
  return uint64_t{2} * model.layer_count * kv_heads *
         (uint64_t{model.head_dim} * dtype.element_bytes + dtype.scale_bytes);
}

absl::Status Validate(const ModelShape& model, const Deployment& deployment) {
  if (deployment.block_size < 1 || deployment.block_size > kMaxBlockSize)
    return OutOfRange("block_size", deployment.block_size, absl::StrCat("1 to ", kMaxBlockSize));
  if (deployment.max_sequences < 1) return OutOfRange("max_sequences", 0, "at least 1");
  if (deployment.max_model_len < 1 || deployment.max_model_len > model.context_length) {
    return OutOfRange("max_model_len", deployment.max_model_len,
                      absl::StrCat("1 to the model's context, ", model.context_length));
  }
  if (deployment.tokens_per_request < 1 ||
      deployment.tokens_per_request > deployment.max_model_len) {
    return OutOfRange("tokens_per_request", deployment.tokens_per_request,
                      absl::StrCat("1 to max_model_len, ", deployment.max_model_len));
  }
  const uint32_t ranks = deployment.tensor_parallel;
  if (ranks < 1 || model.query_head_count % ranks != 0 ||
      (model.kv_head_count % ranks != 0 && ranks % model.kv_head_count != 0)) {
    return OutOfRange("tensor_parallel", ranks,
                      absl::StrCat("a divisor of the ", model.query_head_count,
                                   " query heads, and a divisor or a multiple of the ",
                                   model.kv_head_count, " KV heads"));
  }
  if (!(deployment.memory_utilization > 0 && deployment.memory_utilization <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("memory_utilization is ",
                                                   deployment.memory_utilization,
                                                   "; it must be above 0 and at most 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KvDtype> ParseKvDtype(const std::string& name) {
  std::string names;
  for (const KvDtype& dtype : kKvDtypes) {
    if (name == dtype.name) return dtype;
    absl::StrAppend(&names, names.empty() ? "" : ", ", dtype.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is \"", name, "\"; it must be one of ", names));
}

const char* CapacityBoundName(CapacityBound bound) {
  switch (bound) {
    case CapacityBound::kContextLimit:
      return "context limit";
    case CapacityBound::kKvMemory:
      return "KV memory";
    case CapacityBound::kMaxSequences:
      return "max sequences";
  }
  return "";
}

absl::StatusOr<Capacity> PlanCapacity(const ModelShape& model, const Deployment& deployment) {
  OCTAVO_RETURN_IF_ERROR(Validate(model, deployment));
  Capacity plan;
  const uint64_t ranks = deployment.tensor_parallel;
  const uint64_t rank_heads = CeilDivide(model.kv_head_count, ranks);
  plan.bytes_per_token = BytesPerToken(model, deployment.kv_dtype, model.kv_head_count);
  plan.rank_bytes_per_token = BytesPerToken(model, deployment.kv_dtype, rank_heads);
  plan.rank_weight_bytes = CeilDivide(deployment.weight_bytes, ranks);
  const uint64_t block_bytes = plan.rank_bytes_per_token * deployment.block_size;
  if (deployment.kv_memory_bytes) {
    plan.pool_bytes = *deployment.kv_memory_bytes;
  } else {
    const uint64_t budget =
        PoolBudgetBytes(deployment.memory_bytes, deployment.memory_utilization, 0);
    plan.pool_bytes = PoolBudgetBytes(deployment.memory_bytes, deployment.memory_utilization,
                                      plan.rank_weight_bytes + deployment.activation_bytes);
    if (plan.pool_bytes < block_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "nothing is left for the KV cache: ", budget, " bytes of a rank (memory ",
          deployment.memory_bytes, " x memory_utilization ", deployment.memory_utilization,
          ") less ", plan.rank_weight_bytes, " of weights and ", deployment.activation_bytes,
          " of activations, and a block takes ", block_bytes,
          "; raise --tensor_parallel or --memory, or use smaller weights"));
    }
  }
  plan.block_count = plan.pool_bytes / block_bytes;
  plan.token_count = plan.block_count * deployment.block_size;
  const uint64_t full_blocks =
      std::max<uint64_t>(CeilDivide(deployment.max_model_len, deployment.block_size), 1);
  const uint64_t usual_blocks = CeilDivide(deployment.tokens_per_request, deployment.block_size);
  const uint64_t limit = deployment.max_sequences;
  plan.full_requests = std::min(plan.block_count / full_blocks, limit);
  plan.full_concurrency = FullLengthConcurrency(plan.block_count, full_blocks);
  plan.usual_requests = std::min(plan.block_count / usual_blocks, limit);
  plan.bound = plan.block_count < full_blocks ? CapacityBound::kContextLimit
               : plan.usual_requests == limit ? CapacityBound::kMaxSequences
                                              : CapacityBound::kKvMemory;
  return plan;
}

std::vector<CapacityAdvice> AdviseCapacity(const ModelShape& model, const Deployment& deployment,
                                           const Capacity& now) {
  std::vector<std::pair<std::string, Deployment>> changes;
  const auto change = [&](std::string name) -> Deployment& {
    changes.emplace_back(std::move(name), deployment);
    return changes.back().second;
  };
  if (now.bound == CapacityBound::kMaxSequences) {
    const uint64_t usual_blocks = CeilDivide(deployment.tokens_per_request, deployment.block_size);
    const uint64_t more = now.block_count / usual_blocks;
    if (more > deployment.max_sequences && more <= UINT32_MAX)
      change(absl::StrCat("--max_sequences ", more)).max_sequences = static_cast<uint32_t>(more);
  } else {
    for (const KvDtype& dtype : kKvDtypes) {
      if (BytesPerToken(model, dtype, 1) < BytesPerToken(model, deployment.kv_dtype, 1))
        change(absl::StrCat("--kv_dtype ", dtype.name)).kv_dtype = dtype;
    }
    if (!deployment.kv_memory_bytes) {
      const auto int4_bytes =
          static_cast<uint64_t>(static_cast<double>(model.parameter_count) * kInt4Bits / 8);
      if (int4_bytes < deployment.weight_bytes) change("int4 weights").weight_bytes = int4_bytes;
      if (deployment.memory_utilization < 0.95)
        change("--memory_utilization 0.95").memory_utilization = 0.95;
    }
    change(absl::StrCat("--tensor_parallel ", deployment.tensor_parallel * 2)).tensor_parallel *= 2;
  }
  std::vector<CapacityAdvice> advice;
  for (const auto& [name, changed] : changes) {
    const absl::StatusOr<Capacity> then = PlanCapacity(model, changed);
    if (!then.ok()) continue;
    const bool fits =
        now.bound == CapacityBound::kContextLimit && then->bound != CapacityBound::kContextLimit;
    if (fits || then->usual_requests > now.usual_requests)
      advice.push_back({name, then->usual_requests});
  }
  if (now.bound == CapacityBound::kContextLimit && now.token_count > 0) {
    advice.push_back({absl::StrCat("--max_model_len ", now.token_count), now.usual_requests});
  }
  // Few: by insertion, so that of equals the one named first stays first.
  for (auto it = advice.begin(); it != advice.end(); ++it) {
    const auto place = std::find_if(advice.begin(), it, [&](const CapacityAdvice& other) {
      return other.usual_requests < it->usual_requests;
    });
    std::rotate(place, it, it + 1);
  }
  return advice;
}

}  // namespace octavo::cli
