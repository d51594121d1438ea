#include "kernels/sampler_parts.h"

#include <algorithm>

#include "kernels/math.h"

namespace octavo::kernels {
namespace {

RowScan Scan(const float* x, int64_t count) {
  RowScan scan{.max = -std::numeric_limits<float>::infinity()};
  for (int64_t i = 0; i < count; ++i) {
    scan.has_nan |= x[i] != x[i];
    scan.all_finite &= x[i] - x[i] == 0.0f;
    scan.max = Max(x[i], scan.max);
  }
  return scan;
}

bool WeighTile(const float* z, int64_t count, int32_t first, const WeightRule& rule,
               float* weights) {
  bool any = false;
  for (int64_t i = 0; i < kSamplerTile; ++i) {
    weights[i] = 0.0f;
    if (i >= count) continue;
    const RankedToken token{z[i], static_cast<int32_t>(first + i)};
    if (RanksBefore(rule.cut, token)) continue;
    any = true;
    const float weight = Exp((token.z - rule.best) / rule.temperature);
    if (weight >= rule.min_weight) weights[i] = weight;
  }
  return any;
}

float SumTile(float* weights) {
  for (int64_t half = kSamplerTile / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) weights[i] = weights[i] + weights[i + half];
  }
  return weights[0];
}

int64_t Collect(const float* z, int64_t count, float bound, RankedToken* tokens, int64_t capacity) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!(z[i] >= bound)) continue;
    if (found == capacity) return capacity + 1;
    tokens[found++] = {z[i], static_cast<int32_t>(i)};
  }
  return found;
}

int64_t CountRanked(const float* z, int64_t count, RankedToken cut) {
  int64_t ranked = 0;
  for (int64_t i = 0; i < count; ++i) {
    ranked += RanksBefore(cut, {z[i], static_cast<int32_t>(i)}) ? 0 : 1;
  }
  return ranked;
}

void StripMaxima(const float* z, int64_t count, int64_t strip, float* maxima) {
  for (int64_t begin = 0; begin < count; begin += strip) {
    *maxima++ = *std::max_element(z + begin, z + std::min(begin + strip, count));
  }
}

}  // namespace

const SamplerParts& SamplerPartsFor(Isa isa) {
  static constexpr SamplerParts kScalarParts = {Scan,    WeighTile,   SumTile,
                                                Collect, CountRanked, StripMaxima};
  return isa == Isa::kAvx2 ? SamplerPartsAvx2() : kScalarParts;
}

}  // namespace octavo::kernels
