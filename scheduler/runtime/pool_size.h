#pragma once

// How large the KV pool of a replica is made, from what an operator asked for and what a worker
// says its memory leaves. Pure functions.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

// Blocks of a pool: the scheduler keeps some 150 bytes of each, whatever memory a worker claims.
constexpr uint32_t kMaxPoolBlocks = 1 << 24;

// What was asked for: at most one of these. None: what the worker would take by itself.
struct PoolSize {
  std::optional<uint32_t> block_count;      // --num_blocks
  std::optional<uint64_t> kv_memory_bytes;  // --kv_memory, of each rank
  // --memory_utilization: weights, activations and pool together take this share of each rank's
  // memory. Above 0, at most 1.
  std::optional<double> memory_utilization;
};

// What the pool is made of and what it holds.
struct PoolPlan {
  uint32_t block_count = 0;
  uint64_t pool_bytes = 0;  // on each rank
  uint64_t token_count = 0;
  // Of a request as long as the model, its flags and the pool allow.
  uint32_t full_length_tokens = 0;
  uint32_t full_length_requests = 0;   // of these at once
  double full_length_concurrency = 0;  // the same in the blocks alone, parts of a request counted
  std::string sized_by;                // "--kv_memory=2147483648"; "the worker's default"

  friend bool operator==(const PoolPlan&, const PoolPlan&) = default;
};

// ResourceExhausted with the numbers (what was asked for, what there is and what takes it, the
// largest that fits, which flag to change) where it does not fit; also where no block does. Of a
// default that is larger `max_blocks` are taken; what was asked for is refused above it.
absl::StatusOr<uint32_t> ChooseBlockCount(const PoolSize& size, const MemoryPlan& plan,
                                          uint32_t max_blocks);

// REQUIRES: block_count is what ChooseBlockCount gave for `size` and `plan`, at least 1.
PoolPlan MakePoolPlan(const PoolSize& size, const MemoryPlan& plan, uint32_t block_count,
                      const KvLayout& layout, uint32_t context_length, uint32_t max_sequences);

// ResourceExhausted, with the numbers and the flags to change, where not even one request of
// `context_length` tokens fits: for a length that an operator asked for. A model's own is no
// promise: what does not fit the pool is refused request by request.
absl::Status CheckHoldsOne(const PoolPlan& pool, const MemoryPlan& plan, const KvLayout& layout,
                           uint32_t context_length);

// One line for the log: "weights 98.30 MiB and 29.90 MiB in place, activations …; pool 1.00 GiB
// (…): 2912 blocks of 16, 46592 tokens, 5.69 requests at once of 8192; at most … blocks fit".
std::string DescribeMemory(const MemoryPlan& plan, const PoolPlan& pool, const KvLayout& layout);

}  // namespace octavo
