#pragma once

// What happens between some vectors (one query head of one row each) and one tile of 16 keys and
// values: scores, online softmax, weighted sum. Three vectors at a time at most, so that a loaded
// key or value serves three multiplications. Key lanes are the 16 virtual lanes of the dot product
// (two registers); value lanes are output columns. `static`: see the rule in kernels/isa.h.

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "kernels/cpu/kv_convert_avx2.h"
#include "kernels/cpu/math_avx2.h"
#include "kernels/paged_attention.h"

namespace octavo::kernels {

inline constexpr int64_t kMaxVectors = kAttentionTileVectors;
inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Where keys and values are read from: slots already widened, or a page of the cache.
struct WidenedSlots {
  using Element = float;
};
template <KvElement kElement>
struct CacheSlots {
  using Element = uint16_t;
};

static inline __m256 LoadEight(WidenedSlots, const float* source) { return _mm256_load_ps(source); }
template <KvElement kElement>
static inline __m256 LoadEight(CacheSlots<kElement>, const uint16_t* source) {
  return Widen8<kElement>(source);
}

// One item's working set; on the stack. Vectors are `head_dim` apart in `out` and `total`.
struct alignas(32) AttentionWorkspace {
  float keys[kAttentionTile * kMaxHeadDim];
  float values[kAttentionTile * kMaxHeadDim];
  float weights[kMaxVectors * kAttentionTile];
  float rescale[kMaxVectors];
  // The split's partial.
  float max[kMaxVectors];
  float sums[kMaxVectors * kAttentionTile];  // 16 virtual lanes each
  float out[kMaxVectors * kMaxHeadDim];
  // What the splits before it merged to.
  float total_max[kMaxVectors];
  float total_sum[kMaxVectors];
  float total[kMaxVectors * kMaxHeadDim];
};

static inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

// The halving tree over eight registers at once, from its second level on: result lane i is the sum
// of the lanes of s[i].
static inline __m256 SumLanes(const __m256* s) {
  __m256 half[4];
  for (int i = 0; i < 4; ++i) {
    half[i] = _mm256_add_ps(_mm256_permute2f128_ps(s[i], s[i + 4], 0x20),
                            _mm256_permute2f128_ps(s[i], s[i + 4], 0x31));
  }
  const __m256 low = _mm256_add_ps(_mm256_shuffle_ps(half[0], half[1], 0x44),
                                   _mm256_shuffle_ps(half[0], half[1], 0xee));
  const __m256 high = _mm256_add_ps(_mm256_shuffle_ps(half[2], half[3], 0x44),
                                    _mm256_shuffle_ps(half[2], half[3], 0xee));
  return _mm256_add_ps(_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd));
}

// dots[v] = the products of query v with eight keys.
template <int kCount, typename Slots>
static inline void DotEight(const float* const* queries, const typename Slots::Element* keys,
                            int64_t head_dim, __m256* dots) {
  constexpr int kKeys = kCount == 1 ? 4 : 2;  // at a time: what 16 registers hold
  __m256 sums[kCount][8];
  for (int key = 0; key < 8; key += kKeys) {
    __m256 low[kCount][kKeys];
    __m256 high[kCount][kKeys];
    for (int v = 0; v < kCount; ++v) {
      for (int j = 0; j < kKeys; ++j) low[v][j] = high[v][j] = _mm256_setzero_ps();
    }
    for (int64_t d = 0; d < head_dim; d += 16) {
      __m256 k[kKeys];
      for (int j = 0; j < kKeys; ++j) k[j] = LoadEight(Slots{}, keys + (key + j) * head_dim + d);
      for (int v = 0; v < kCount; ++v) {
        const __m256 q = _mm256_loadu_ps(queries[v] + d);
        for (int j = 0; j < kKeys; ++j) low[v][j] = _mm256_fmadd_ps(q, k[j], low[v][j]);
      }
      for (int j = 0; j < kKeys; ++j)
        k[j] = LoadEight(Slots{}, keys + (key + j) * head_dim + d + 8);
      for (int v = 0; v < kCount; ++v) {
        const __m256 q = _mm256_loadu_ps(queries[v] + d + 8);
        for (int j = 0; j < kKeys; ++j) high[v][j] = _mm256_fmadd_ps(q, k[j], high[v][j]);
      }
    }
    for (int v = 0; v < kCount; ++v) {
      for (int j = 0; j < kKeys; ++j) sums[v][key + j] = _mm256_add_ps(low[v][j], high[v][j]);
    }
  }
  for (int v = 0; v < kCount; ++v) dots[v] = SumLanes(sums[v]);
}

static inline float LargestOf(__m256 x) {
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

// Takes a tile's scores, of which the first `visible` keys count, into the running maximum and sums
// of a vector; leaves the keys' weights and the factor for what was summed before. A maximum that
// stays put means a factor of exactly 1.
static inline void UpdateSoftmax(__m256 low, __m256 high, int64_t visible, int64_t vector,
                                 AttentionWorkspace* work) {
  const __m256 masked = _mm256_set1_ps(kMinusInfinity);
  if (visible < kAttentionTile) {
    const int64_t in_low = Min(visible, 8);
    low = _mm256_blendv_ps(masked, low, _mm256_castsi256_ps(FirstLanes(in_low)));
    high = _mm256_blendv_ps(masked, high, _mm256_castsi256_ps(FirstLanes(visible - in_low)));
  }
  const float before = work->max[vector];
  const float max = Max(LargestOf(_mm256_max_ps(low, high)), before);
  const float rescale = max == before ? 1.0f : Exp(before - max);
  const __m256 max8 = _mm256_set1_ps(max);
  const __m256 weight_low = Exp8(_mm256_sub_ps(low, max8));
  const __m256 weight_high = Exp8(_mm256_sub_ps(high, max8));
  float* sums = work->sums + vector * kAttentionTile;
  const __m256 rescale8 = _mm256_set1_ps(rescale);
  _mm256_store_ps(sums, _mm256_fmadd_ps(_mm256_load_ps(sums), rescale8, weight_low));
  _mm256_store_ps(sums + 8, _mm256_fmadd_ps(_mm256_load_ps(sums + 8), rescale8, weight_high));
  _mm256_store_ps(work->weights + vector * kAttentionTile, weight_low);
  _mm256_store_ps(work->weights + vector * kAttentionTile + 8, weight_high);
  work->max[vector] = max;
  work->rescale[vector] = rescale;
}

// out = out * rescale, then the values of the first `visible` keys in order, for kCount vectors and
// 8 * kRegisters columns.
template <int kCount, int kRegisters, typename Slots>
static inline void AddColumns(const typename Slots::Element* values, int64_t head_dim,
                              int64_t column, int64_t visible, int64_t vector,
                              AttentionWorkspace* work) {
  __m256 sum[kCount][kRegisters];
  for (int v = 0; v < kCount; ++v) {
    const float* out = work->out + (vector + v) * head_dim + column;
    const __m256 rescale = _mm256_set1_ps(work->rescale[vector + v]);
    for (int c = 0; c < kRegisters; ++c) {
      sum[v][c] = _mm256_mul_ps(_mm256_load_ps(out + 8 * c), rescale);
    }
  }
  const float* weights = work->weights + vector * kAttentionTile;
  for (int64_t j = 0; j < visible; ++j) {
    __m256 weight[kCount];
    for (int v = 0; v < kCount; ++v) {
      weight[v] = _mm256_broadcast_ss(weights + v * kAttentionTile + j);
    }
    for (int c = 0; c < kRegisters; ++c) {
      const __m256 value = LoadEight(Slots{}, values + j * head_dim + column + 8 * c);
      for (int v = 0; v < kCount; ++v) sum[v][c] = _mm256_fmadd_ps(weight[v], value, sum[v][c]);
    }
  }
  for (int v = 0; v < kCount; ++v) {
    float* out = work->out + (vector + v) * head_dim + column;
    for (int c = 0; c < kRegisters; ++c) _mm256_store_ps(out + 8 * c, sum[v][c]);
  }
}

template <int kCount, typename Slots>
static inline void AddValues(const typename Slots::Element* values, int64_t head_dim,
                             int64_t visible, int64_t vector, AttentionWorkspace* work) {
  int64_t column = 0;
  for (; column + 32 <= head_dim; column += 32) {
    AddColumns<kCount, 4, Slots>(values, head_dim, column, visible, vector, work);
  }
  if (column < head_dim) {
    AddColumns<kCount, 2, Slots>(values, head_dim, column, visible, vector, work);
  }
}

}  // namespace octavo::kernels
