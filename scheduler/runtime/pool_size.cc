#include "scheduler/runtime/pool_size.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/byte_size.h"
#include "common/memory_budget.h"

namespace octavo {
namespace {

uint64_t UsedBytes(const MemoryPlan& plan) {
  return plan.weight_bytes + plan.file_backed_bytes + plan.activation_bytes;
}

// The pool in bytes, where it was asked for in bytes.
std::optional<uint64_t> AskedBytes(const PoolSize& size, const MemoryPlan& plan) {
  if (size.kv_memory_bytes) return size.kv_memory_bytes;
  if (!size.memory_utilization) return std::nullopt;
  return PoolBudgetBytes(plan.total_bytes, *size.memory_utilization, UsedBytes(plan));
}

// The flag that was given, as it would be with the largest pool that fits.
std::string LargestThatFits(const PoolSize& size, const MemoryPlan& plan, uint32_t max_blocks) {
  const uint32_t blocks = std::min(plan.max_block_count, max_blocks);
  const uint64_t bytes = uint64_t{blocks} * plan.bytes_per_block;
  if (size.kv_memory_bytes) return absl::StrCat("--kv_memory=", bytes);
  if (!size.memory_utilization) return absl::StrCat("--num_blocks=", blocks);
  // Rounded down, so that it does fit.
  const double share = static_cast<double>(bytes + UsedBytes(plan)) /
                       static_cast<double>(std::max<uint64_t>(plan.total_bytes, 1));
  return absl::StrFormat("--memory_utilization=%.3f", std::floor(share * 1000) / 1000);
}

std::string AskedFor(const PoolSize& size) {
  if (size.block_count) return absl::StrCat("--num_blocks=", *size.block_count);
  if (size.kv_memory_bytes) return absl::StrCat("--kv_memory=", *size.kv_memory_bytes);
  if (size.memory_utilization)
    return absl::StrCat("--memory_utilization=", *size.memory_utilization);
  return "the worker's default";
}

// "of 16.00 GiB weights take …, activations …; a block takes … bytes, at most … blocks (… ) fit".
std::string WhatThereIs(const MemoryPlan& plan) {
  return absl::StrCat("of ", FormatBytes(plan.total_bytes), " weights take ",
                      FormatBytes(plan.weight_bytes), " and ", FormatBytes(plan.file_backed_bytes),
                      " in place, activations ", FormatBytes(plan.activation_bytes),
                      "; a block takes ", plan.bytes_per_block, " bytes, and in what is left now ",
                      "fit at most ", plan.max_block_count, " blocks, ",
                      FormatBytes(uint64_t{plan.max_block_count} * plan.bytes_per_block));
}

}  // namespace

absl::StatusOr<uint32_t> ChooseBlockCount(const PoolSize& size, const MemoryPlan& plan,
                                          uint32_t max_blocks) {
  const std::optional<uint64_t> bytes = AskedBytes(size, plan);
  if (bytes && plan.bytes_per_block == 0) {
    return absl::InvalidArgumentError("the worker says that a block takes 0 bytes");
  }
  const bool is_default = !bytes && !size.block_count;
  const uint64_t count = bytes        ? *bytes / plan.bytes_per_block
                         : is_default ? std::min(plan.block_count, max_blocks)
                                      : *size.block_count;
  if (count >= 1 && count <= plan.max_block_count && count <= max_blocks) {
    return static_cast<uint32_t>(count);
  }
  const std::string asked = AskedFor(size);
  if (plan.max_block_count == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no block of KV cache fits: ", WhatThereIs(plan),
                     "; free memory, or take a smaller --block_size or --max_step_tokens"));
  }
  if (count == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(asked, " leaves room for no block: ", WhatThereIs(plan), "; raise it, up to ",
                     LargestThatFits(size, plan, max_blocks)));
  }
  if (count > plan.max_block_count) {
    return absl::ResourceExhaustedError(
        absl::StrCat(asked, " does not fit: ", count, " blocks are ",
                     FormatBytes(count * plan.bytes_per_block), "; ", WhatThereIs(plan),
                     "; free memory, or lower it to ", LargestThatFits(size, plan, max_blocks)));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      asked, " makes ", count, " blocks; a pool may have ", max_blocks,
      ": raise --block_size, or lower it to ", LargestThatFits(size, plan, max_blocks)));
}

PoolPlan MakePoolPlan(const PoolSize& size, const MemoryPlan& plan, uint32_t block_count,
                      const KvLayout& layout, uint32_t context_length, uint32_t max_sequences) {
  const uint64_t tokens = uint64_t{block_count} * layout.block_size;
  const auto longest = static_cast<uint32_t>(std::min<uint64_t>(context_length, tokens));
  const uint32_t blocks_each = std::max(layout.BlocksFor(longest), 1u);
  return {.block_count = block_count,
          .pool_bytes = uint64_t{block_count} * plan.bytes_per_block,
          .token_count = tokens,
          .full_length_tokens = longest,
          .full_length_requests = std::min(block_count / blocks_each, max_sequences),
          .full_length_concurrency = FullLengthConcurrency(block_count, blocks_each),
          .sized_by = AskedFor(size)};
}

absl::Status CheckHoldsOne(const PoolPlan& pool, const MemoryPlan& plan, const KvLayout& layout,
                           uint32_t context_length) {
  const uint64_t needed = layout.BlocksFor(context_length);
  if (needed <= pool.block_count) return absl::OkStatus();
  std::string raise;
  if (needed <= plan.max_block_count)
    raise = absl::StrCat(", or make a pool of --num_blocks=", needed);
  return absl::ResourceExhaustedError(absl::StrCat(
      "--context_length=", context_length, " takes ", needed, " blocks of ", layout.block_size,
      "; the pool (", pool.sized_by, ") has ", pool.block_count, ", and at most ",
      plan.max_block_count, " fit: lower it to --context_length=", pool.token_count, raise));
}

std::string DescribeMemory(const MemoryPlan& plan, const PoolPlan& pool, const KvLayout& layout) {
  return absl::StrCat(
      "weights ", FormatBytes(plan.weight_bytes), " and ", FormatBytes(plan.file_backed_bytes),
      " in place, activations ", FormatBytes(plan.activation_bytes), ", pool ",
      FormatBytes(pool.pool_bytes), " (", pool.sized_by, "): ", pool.block_count, " blocks of ",
      layout.block_size, ", ", pool.token_count, " tokens, ",
      absl::StrFormat("%.2f", pool.full_length_concurrency), " requests at once of ",
      pool.full_length_tokens, " tokens; at most ", plan.max_block_count, " blocks fit");
}

}  // namespace octavo
