#pragma once

// The seeds of a request's parallel samples: published, so that a client can ask for one sample
// again with a request of its own.

#include <cstdint>

namespace octavo {

// seed_i = seed + i × 0x9E3779B97F4A7C15 modulo 2^64, so that seed_0 is the request's own and the
// 64 samples a request may have differ. (The constant is odd: 2^64 over the golden ratio.)
constexpr uint64_t SampleSeed(uint64_t seed, uint32_t index) {
  return seed + index * uint64_t{0x9E3779B97F4A7C15};
}

}  // namespace octavo
