#include "kernels/cpu/math_avx2.h"
#include "kernels/sampler_parts.h"

namespace octavo::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Eight values from x, of which the last tokens of a row may be missing; those read as `filler`.
__m256 LoadFirst(const float* x, int64_t count, __m256 filler) {
  if (count >= 8) return _mm256_loadu_ps(x);
  const __m256i lanes = FirstLanes(count);
  return _mm256_blendv_ps(filler, _mm256_maskload_ps(x, lanes), _mm256_castsi256_ps(lanes));
}

float LargestOf(__m256 x) {
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, x);
  float max = kMinusInfinity;
  for (const float lane : lanes) max = Max(lane, max);
  return max;
}

RowScan Scan(const float* x, int64_t count) {
  const __m256 filler = _mm256_set1_ps(kMinusInfinity);
  __m256 max = filler;
  __m256 finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  __m256 nan = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 value = _mm256_loadu_ps(x + i);
    max = _mm256_max_ps(value, max);
    const __m256 zero = _mm256_sub_ps(value, value);
    finite = _mm256_and_ps(finite, _mm256_cmp_ps(zero, _mm256_setzero_ps(), _CMP_EQ_OQ));
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }
  RowScan scan{.max = LargestOf(max),
               .all_finite = _mm256_movemask_ps(finite) == 0xff,
               .has_nan = _mm256_movemask_ps(nan) != 0};
  for (; i < count; ++i) {
    scan.has_nan |= x[i] != x[i];
    scan.all_finite &= x[i] - x[i] == 0.0f;
    scan.max = Max(x[i], scan.max);
  }
  return scan;
}

// All ones where (z, id) ranks at the cut or before it.
struct CutMask {
  __m256 cut_z;
  __m256i cut_id;

  explicit CutMask(RankedToken cut)
      : cut_z(_mm256_set1_ps(cut.z)), cut_id(_mm256_set1_epi32(cut.token_id)) {}

  __m256 Of(__m256 z, __m256i id) const {
    const __m256 above = _mm256_cmp_ps(z, cut_z, _CMP_GT_OQ);
    const __m256 equal = _mm256_cmp_ps(z, cut_z, _CMP_EQ_OQ);
    const __m256 late = _mm256_castsi256_ps(_mm256_cmpgt_epi32(id, cut_id));
    return _mm256_or_ps(above, _mm256_andnot_ps(late, equal));
  }
};

__m256i IdsFrom(int32_t first) {
  return _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

bool WeighTile(const float* z, int64_t count, int32_t first, const WeightRule& rule,
               float* weights) {
  const CutMask cut(rule.cut);
  const __m256 best = _mm256_set1_ps(rule.best);
  const __m256 temperature = _mm256_set1_ps(rule.temperature);
  const __m256 min_weight = _mm256_set1_ps(rule.min_weight);
  const __m256 filler = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  const __m256 zero = _mm256_setzero_ps();
  // Most tiles hold no token before the cut, and most groups of eight neither: ask before working.
  int64_t i = 0;
  for (; i < count; i += 8) {
    const __m256 value = LoadFirst(z + i, count - i, filler);
    if (_mm256_movemask_ps(cut.Of(value, IdsFrom(first + static_cast<int32_t>(i)))) != 0) break;
  }
  if (i >= count) return false;
  for (int64_t j = 0; j < i; j += 8) _mm256_store_ps(weights + j, zero);
  for (; i < count; i += 8) {
    const __m256 value = LoadFirst(z + i, count - i, filler);
    const __m256 kept = cut.Of(value, IdsFrom(first + static_cast<int32_t>(i)));
    __m256 weight = zero;
    if (_mm256_movemask_ps(kept) != 0) {
      weight = Exp8(_mm256_div_ps(_mm256_sub_ps(value, best), temperature));
      const __m256 heavy = _mm256_cmp_ps(weight, min_weight, _CMP_GE_OQ);
      weight = _mm256_and_ps(weight, _mm256_and_ps(kept, heavy));
    }
    _mm256_store_ps(weights + i, weight);
  }
  for (; i < kSamplerTile; i += 8) _mm256_store_ps(weights + i, zero);
  return true;
}

float SumTile(float* weights) {
  for (int64_t half = kSamplerTile / 2; half >= 8; half /= 2) {
    for (int64_t i = 0; i < half; i += 8) {
      _mm256_store_ps(weights + i, _mm256_add_ps(_mm256_load_ps(weights + i),
                                                 _mm256_load_ps(weights + i + half)));
    }
  }
  for (int64_t half = 4; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) weights[i] = weights[i] + weights[i + half];
  }
  return weights[0];
}

int64_t Collect(const float* z, int64_t count, float bound, RankedToken* tokens, int64_t capacity) {
  const __m256 bound8 = _mm256_set1_ps(bound);
  const __m256 filler = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 value = LoadFirst(z + i, count - i, filler);
    uint32_t mask =
        static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(value, bound8, _CMP_GE_OQ)));
    for (; mask != 0; mask &= mask - 1) {
      if (found == capacity) return capacity + 1;
      const int64_t token = i + __builtin_ctz(mask);
      tokens[found].z = z[token];
      tokens[found].token_id = static_cast<int32_t>(token);
      ++found;
    }
  }
  return found;
}

int64_t CountRanked(const float* z, int64_t count, RankedToken cut) {
  const CutMask mask(cut);
  const __m256 filler = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  int64_t ranked = 0;
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 value = LoadFirst(z + i, count - i, filler);
    const __m256 kept = mask.Of(value, IdsFrom(static_cast<int32_t>(i)));
    ranked += __builtin_popcount(static_cast<uint32_t>(_mm256_movemask_ps(kept)));
  }
  return ranked;
}

void StripMaxima(const float* z, int64_t count, int64_t strip, float* maxima) {
  const __m256 filler = _mm256_set1_ps(kMinusInfinity);
  for (int64_t begin = 0; begin < count; begin += strip) {
    const int64_t end = begin + strip < count ? begin + strip : count;
    __m256 max = filler;
    for (int64_t i = begin; i < end; i += 8) {
      max = _mm256_max_ps(max, LoadFirst(z + i, end - i, filler));
    }
    *maxima++ = LargestOf(max);
  }
}

}  // namespace

const SamplerParts& SamplerPartsAvx2() {
  static constexpr SamplerParts kParts = {Scan,    WeighTile,   SumTile,
                                          Collect, CountRanked, StripMaxima};
  return kParts;
}

}  // namespace octavo::kernels
