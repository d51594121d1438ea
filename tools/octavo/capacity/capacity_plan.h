#pragma once

// What a KV pool holds: bytes a token, blocks, tokens, concurrent requests, what bounds them and
// which change would raise them most. In: a model's shape and a deployment. Out: a value. Pure
// functions; sizes are of one rank unless they say otherwise.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/memory_budget.h"
#include "tools/octavo/capacity/model_shape.h"

namespace octavo::cli {

// An element type of the KV cache and what is stored beside a token's vector of one head.
struct KvDtype {
  const char* name;
  uint32_t element_bytes;
  uint32_t scale_bytes;  // for each token and head, of K and of V
};
constexpr KvDtype kKvDtypes[] = {{"f16", 2, 0}, {"bf16", 2, 0}, {"fp8", 1, 0}, {"int8", 1, 4}};
absl::StatusOr<KvDtype> ParseKvDtype(const std::string& name);

struct Deployment {
  uint64_t memory_bytes = 0;  // of each rank's device
  double memory_utilization = kDefaultMemoryUtilization;
  uint64_t weight_bytes = 0;  // of the whole model
  uint64_t activation_bytes = 1ull << 30;
  std::optional<uint64_t> kv_memory_bytes;  // the pool itself, of each rank; the above is not asked
  KvDtype kv_dtype = kKvDtypes[0];
  uint32_t block_size = 16;
  uint32_t tensor_parallel = 1;
  uint32_t max_sequences = 256;
  uint32_t max_model_len = 0;       // tokens of the longest request
  uint32_t tokens_per_request = 0;  // of a usual request, prompt and output
};

enum class CapacityBound : uint8_t { kContextLimit, kKvMemory, kMaxSequences };
// "context limit", "KV memory", "max sequences".
const char* CapacityBoundName(CapacityBound bound);

struct Capacity {
  uint64_t bytes_per_token = 0;       // of the whole model, all ranks once
  uint64_t rank_bytes_per_token = 0;  // KV heads are split, or replicated where fewer than ranks
  uint64_t rank_weight_bytes = 0;
  uint64_t pool_bytes = 0;
  uint64_t block_count = 0;
  uint64_t token_count = 0;
  uint64_t full_requests = 0;   // at once, each of max_model_len
  double full_concurrency = 0;  // the same in the blocks alone, parts of a request counted
  uint64_t usual_requests = 0;  // at once, each of tokens_per_request
  CapacityBound bound = CapacityBound::kKvMemory;  // of the usual requests
};

// InvalidArgument naming the field, its value and the limit; ResourceExhausted with the numbers
// where weights and activations leave nothing for a block.
absl::StatusOr<Capacity> PlanCapacity(const ModelShape& model, const Deployment& deployment);

// One change and what it makes of the usual requests at once.
struct CapacityAdvice {
  std::string change;  // "--kv_dtype fp8"
  uint64_t usual_requests = 0;
};

// The changes that would raise the usual requests at once (or, where even one full request does not
// fit, make it fit), the best first. `now` is PlanCapacity's answer.
std::vector<CapacityAdvice> AdviseCapacity(const ModelShape& model, const Deployment& deployment,
                                           const Capacity& now);

}  // namespace octavo::cli
