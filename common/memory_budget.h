#pragma once

// What the memory of a device leaves for a KV pool: the one formula, for the pool a scheduler asks
// of its workers and for the one `octavo capacity` plans offline. Pure functions.

#include <cstdint>

namespace octavo {

// Of a device that owns its memory. On a CPU others need it too: see worker/model/memory_plan.h.
constexpr double kDefaultMemoryUtilization = 0.92;

// floor(utilization x memory) less what is used of it (weights, activations, graphs); 0 where
// nothing is left. REQUIRES: 0 < utilization <= 1.
constexpr uint64_t PoolBudgetBytes(uint64_t memory_bytes, double utilization, uint64_t used_bytes) {
  constexpr double kMost = 0x1p63;  // what a device cannot have, whatever it says
  const double share = static_cast<double>(memory_bytes) * utilization;
  const auto budget = static_cast<uint64_t>(share < kMost ? share : kMost);
  return budget > used_bytes ? budget - used_bytes : 0;
}

// How many requests of full length a pool holds at once, parts of one counted. REQUIRES:
// blocks_each >= 1.
constexpr double FullLengthConcurrency(uint64_t block_count, uint64_t blocks_each) {
  return static_cast<double>(block_count) / static_cast<double>(blocks_each);
}

}  // namespace octavo
