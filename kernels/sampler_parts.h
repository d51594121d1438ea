#pragma once

// What the sampler does to all logits of a row, once for each instruction set; what it does with
// the results is one piece of code (reference/sampler.cc). For the definition see
// kernels/sampler.h.

#include <cstdint>
#include <limits>

#include "kernels/isa.h"
#include "kernels/sampler.h"

namespace octavo::kernels {

struct RankedToken {
  float z = 0;
  int32_t token_id = 0;
};

// Tokens rank by z, ties by lower id.
[[maybe_unused]] static inline bool RanksBefore(const RankedToken& a, const RankedToken& b) {
  return a.z > b.z || (a.z == b.z && a.token_id < b.token_id);
}

// Which tokens weigh something, and how much: w = exp((z - best) / temperature) for tokens that
// rank at `cut` or before it and weigh at least min_weight; +0 for the others.
struct WeightRule {
  float best = 0;
  float temperature = 1;
  RankedToken cut = {-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};
  float min_weight = 0;
};

struct RowScan {
  float max = 0;
  bool all_finite = true;
  bool has_nan = false;
};

struct SamplerParts {
  RowScan (*scan)(const float* x, int64_t count);

  // The weights of the tile of `count` tokens that starts at logits z and id `first`, padded to
  // kSamplerTile with +0. False if no token of it ranks at the cut or before: the weights are then
  // not written and all count as +0.
  bool (*weigh_tile)(const float* z, int64_t count, int32_t first, const WeightRule& rule,
                     float* weights);
  // The halving tree over kSamplerTile values, which are overwritten.
  float (*sum_tile)(float* weights);

  // Tokens with z >= bound, in order of id; at most `capacity` are written. Returns how many there
  // are, or capacity + 1 for more.
  int64_t (*collect)(const float* z, int64_t count, float bound, RankedToken* tokens,
                     int64_t capacity);
  // How many tokens rank at `cut` or before it.
  int64_t (*count_ranked)(const float* z, int64_t count, RankedToken cut);
  // The largest z of each strip of `strip` tokens (a multiple of 8; the last may be short).
  void (*strip_maxima)(const float* z, int64_t count, int64_t strip, float* maxima);
};

const SamplerParts& SamplerPartsFor(Isa isa);
const SamplerParts& SamplerPartsAvx2();

}  // namespace octavo::kernels
