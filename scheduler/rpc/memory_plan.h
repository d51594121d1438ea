#pragma once

// MemoryPlan, LoadedModel and PoolPlan between their values (scheduler/runtime/ports.h,
// pool_size.h) and their messages.
// Pure functions. A worker's word is taken as it is: the fleet judges it.

#include "octavo/v1/admin_service.pb.h"
#include "octavo/v1/worker_service.pb.h"
#include "scheduler/runtime/pool_size.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

inline MemoryPlan DecodeMemoryPlan(const v1::MemoryPlan& message) {
  return {.total_bytes = message.total_bytes(),
          .weight_bytes = message.weight_bytes(),
          .file_backed_bytes = message.file_backed_bytes(),
          .activation_bytes = message.activation_bytes(),
          .bytes_per_block = message.bytes_per_block(),
          .pool_bytes = message.pool_bytes(),
          .block_count = message.block_count(),
          .max_block_count = message.max_block_count()};
}

inline LoadedModel DecodeLoadedModel(const v1::LoadModelResponse& message) {
  return {.memory_plan = DecodeMemoryPlan(message.memory_plan()),
          .kv_layout_fingerprint = message.kv_layout_fingerprint(),
          .kv_dtype = message.kv_dtype()};
}

inline void EncodeMemoryPlan(const MemoryPlan& plan, v1::MemoryPlan& message) {
  message.set_total_bytes(plan.total_bytes);
  message.set_weight_bytes(plan.weight_bytes);
  message.set_file_backed_bytes(plan.file_backed_bytes);
  message.set_activation_bytes(plan.activation_bytes);
  message.set_bytes_per_block(plan.bytes_per_block);
  message.set_pool_bytes(plan.pool_bytes);
  message.set_block_count(plan.block_count);
  message.set_max_block_count(plan.max_block_count);
}

inline void EncodePoolPlan(const PoolPlan& pool, v1::PoolPlan& message) {
  message.set_block_count(pool.block_count);
  message.set_pool_bytes(pool.pool_bytes);
  message.set_token_count(pool.token_count);
  message.set_full_length_tokens(pool.full_length_tokens);
  message.set_full_length_requests(pool.full_length_requests);
  message.set_full_length_concurrency(pool.full_length_concurrency);
  message.set_sized_by(pool.sized_by);
}

}  // namespace octavo
