#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::bench {

// REQUIRES: AVX2. The result depends on all that was done, so that nothing is optimised away.
uint64_t ReadAll(const uint8_t* begin,
                 size_t bytes);  // begin aligned to 32, bytes a multiple of 128
uint64_t MultiplyPairs(
    int64_t rounds);  // each round: 12 times vpmaddwd + vpaddd, 32 operations apiece
constexpr int64_t kOperationsPerRound = 12 * 32;
uint64_t FuseMultiplyAdditions(int64_t rounds);  // each round: 12 times vfmadd231ps
constexpr int64_t kFloatOperationsPerRound = 12 * 16;

}  // namespace octavo::bench
