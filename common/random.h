#pragma once

// Counter-based randomness: a draw is a pure function of (seed, position, draw index), so it does
// not matter who shares the batch, in which order sequences run, or how often a step is repeated.
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011); integer
// arithmetic only, so host and device agree bit for bit.

#include <array>
#include <cstdint>

namespace octavo {

// Philox4x32-10 of a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 32 random bits for draw `draw` of the token at absolute position `position` in a sequence with
// seed `seed`.
uint32_t RandomBits(uint64_t seed, uint64_t position, uint32_t draw);

// Uniform in (0, 1): (bits + 0.5) / 2^32 computed on the upper 23 bits, so that it is exact in
// float and never 0 or 1.
float RandomUniform(uint64_t seed, uint64_t position, uint32_t draw);

// One splitmix64 step (Steele et al., OOPSLA 2014): a bijection of 64-bit integers with good
// avalanche.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace octavo
