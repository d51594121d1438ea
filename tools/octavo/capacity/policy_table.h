#pragma once

// How many requests of given lengths a pool admits under each KV policy. The lengths are final,
// requests are admitted in the order given until the first that does not fit: nothing is passed
// over, nothing held back, nothing ends. Pure functions.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/core/contiguous_allocator.h"
#include "scheduler/core/kv_policy.h"
#include "tools/octavo/trace_file.h"

namespace octavo::cli {

struct PolicyPool {
  uint32_t block_count = 0;
  uint32_t block_size = 16;
  uint32_t max_model_len = 0;
  ContiguousAllocatorKind allocator = ContiguousAllocatorKind::kBuddy;
};

struct PolicyRow {
  KvPolicy policy = KvPolicy::kPaged;
  uint32_t admitted = 0;
  uint32_t taken_blocks = 0;  // handed out
  uint32_t used_blocks = 0;   // with at least one token in them
  uint64_t tokens = 0;

  friend bool operator==(const PolicyRow&, const PolicyRow&) = default;
};

// One row a policy, in the order of kKvPolicies. InvalidArgument naming a length that is not 1 to
// max_model_len, or a pool without blocks.
absl::StatusOr<std::vector<PolicyRow>> ComparePolicies(const std::vector<RequestLength>& requests,
                                                       const PolicyPool& pool);

}  // namespace octavo::cli
