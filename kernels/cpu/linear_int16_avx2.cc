// Compiled with -mavx2 -mfma -mf16c; see the rule in kernels/isa.h.
//
// Products of quantised weights with int16 activations. Lanes run over the 16 outputs of a panel,
// so that each output's sum over K stays in one lane and keeps the order kernels/linear.h writes
// down.
//
// Two ways through a panel, the same arithmetic in both:
//   few rows    (FusedRows)     codes are unpacked in registers and multiplied at once with up to
//   four rows: the weights are read from
//                               memory once and nothing is written back.
//   many rows   (UnpackChunk,   eight groups at a time are unpacked to int16 in a buffer of 8 KiB
//   that stays in the first-level cache;
//                ChunkRows)     all rows of the tile then pass over it, four at a time.

#include <immintrin.h>

#include "kernels/cpu/group_decoders_avx2.h"
#include "kernels/cpu/linear_ops_avx2.h"
#include "kernels/cpu/panel_tiles_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

constexpr int kRowBlock = 4;  // rows of a register tile: 8 sums, 2 codes and 1 pair of values fit
constexpr int kChunkGroups = 8;
constexpr int kPrefetchBytes = 2048;

// The activations of a run of rows, from the input where a slice starts.
struct RowsView {
  const int16_t* values;
  const float* scales;
  const float* sums;
  int64_t value_stride;  // from one row to the next
  int64_t group_stride;

  OCTAVO_INLINE RowsView Row(int64_t r) const {
    return {values + r * value_stride, scales + r * group_stride, sums + r * group_stride,
            value_stride, group_stride};
  }
  OCTAVO_INLINE RowsView Group(int64_t g) const {
    return {values + 32 * g, scales + g, sums + g, value_stride, group_stride};
  }
};

OCTAVO_INLINE __m256i BroadcastPair(const int16_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return _mm256_set1_epi32(pair);
}

// sum + w . x, pair by pair. The empty statement hides the sum from the optimiser, which would
// otherwise regroup a chain of sixteen additions into a tree of products and spill them (GCC 12:
// half the speed).
OCTAVO_INLINE void AddProducts(__m256i& sum, __m256i w, __m256i x) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
  __asm__("" : "+x"(sum));
}

// acc = fma(products, scale * x_scale, acc), then acc = fma(min, x_sum, acc).
template <bool kHasMin>
OCTAVO_INLINE __m256 AddGroup(__m256 acc, __m256 products, __m256 scale, __m256 min, __m256 x_scale,
                              __m256 x_sum) {
  acc = _mm256_fmadd_ps(products, _mm256_mul_ps(scale, x_scale), acc);
  if constexpr (kHasMin) acc = _mm256_fmadd_ps(min, x_sum, acc);
  return acc;
}

// What each row of a register tile reads next. One pointer a row: hidden from the optimiser, which
// would otherwise keep one address a load.
template <int kRows>
struct ValuePointers {
  const int16_t* row[kRows];

  OCTAVO_INLINE explicit ValuePointers(const RowsView& x) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      row[r] = x.values + r * x.value_stride;
      __asm__("" : "+r"(row[r]));
    }
  }
};

template <int kRows>
OCTAVO_INLINE void SetZero(__m256i sum[kRows][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
}

// ---- Few rows ----

OCTAVO_INLINE void Prefetch(const uint8_t* bytes) {
  _mm_prefetch(reinterpret_cast<const char*>(bytes) + kPrefetchBytes, _MM_HINT_T0);
}

// Adds the products of the nibble rows [b0, b1) of a group and advances the pointers past them.
template <typename D, int kRows>
OCTAVO_INLINE void SumCodes(const uint8_t* body, int b0, int b1, ValuePointers<kRows>& values,
                            __m256i sum[kRows][2]) {
#pragma GCC unroll 1
  for (int b = b0; b < b1; ++b) {
    Prefetch(body + 64 * b);
    D::FourPairs(body, b, [&](int s, __m256i w0, __m256i w1) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i pair = BroadcastPair(values.row[r] + 2 * s);
        AddProducts(sum[r][0], w0, pair);
        AddProducts(sum[r][1], w1, pair);
      }
    });
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) values.row[r] += 8;
  }
}

// kRows rows of a slice of `units` units, to out[kRows][16], from +0.
template <typename D, int kRows>
__attribute__((noinline)) void FusedRows(const uint8_t* unit, int64_t units, const RowsView& x,
                                         float* out) {
  constexpr int kBytesAGroup = D::kGroupBytes + (D::kGroups == 1 ? D::kHeaderBytes : 0);
  __m256 acc[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  RowsView at = x;
  for (int64_t u = 0; u < units; ++u) {
    const typename D::Unit scales_of_unit = D::LoadUnit(unit);
    const uint8_t* body = unit + D::kHeaderBytes;
    for (int g = 0; g < D::kGroups; ++g, body += D::kGroupBytes, at = at.Group(1)) {
      ValuePointers<kRows> values(at);
      __m256i sum[kRows][2], first_half[kRows][2];
      SetZero<kRows>(sum);
      if constexpr (D::kHalfScales) {
        SumCodes<D, kRows>(body, 0, 2, values, sum);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          first_half[r][0] = sum[r][0];
          first_half[r][1] = sum[r][1];
        }
        SetZero<kRows>(sum);
        SumCodes<D, kRows>(body, 2, 4, values, sum);
      } else {
        SumCodes<D, kRows>(body, 0, 4, values, sum);
      }
#pragma GCC unroll 8
      for (int i = 256; i < kBytesAGroup; i += 64) Prefetch(body + i);
      const GroupScales& scales = D::Scales(scales_of_unit, body);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256 x_scale = _mm256_broadcast_ss(at.scales + r * at.group_stride);
        const __m256 x_sum = _mm256_broadcast_ss(at.sums + r * at.group_stride);
#pragma GCC unroll 8
        for (int h = 0; h < 2; ++h) {
          __m256 products = _mm256_cvtepi32_ps(sum[r][h]);
          if constexpr (D::kHalfScales) {
            products = _mm256_add_ps(
                _mm256_cvtepi32_ps(_mm256_mullo_epi32(first_half[r][h], D::HalfScale(body, 0, h))),
                _mm256_cvtepi32_ps(_mm256_mullo_epi32(sum[r][h], D::HalfScale(body, 1, h))));
          }
          acc[r][h] = AddGroup<D::kHasMin>(acc[r][h], products, scales.scale[h], scales.min[h],
                                           x_scale, x_sum);
        }
      }
    }
    unit = body;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(out + 16 * r, acc[r][0]);
    _mm256_storeu_ps(out + 16 * r + 8, acc[r][1]);
  }
}

// ---- Many rows ----

// Eight groups as int16, for the 16 outputs of a panel.
struct Chunk {
  // [group][pair t][half of the panel][2 * output + place in the pair]
  alignas(64) int16_t codes[kChunkGroups][16][2][16];
  alignas(64) float scale[kChunkGroups][2][8];
  alignas(64) float min[kChunkGroups][2][8];
  // [group][half of K][half of the panel][output], Q6_K only
  alignas(64) int32_t half_scale[kChunkGroups][2][2][8];
};

// Unpacks `units` units (at most kChunkGroups groups).
template <typename D>
__attribute__((noinline)) void UnpackChunk(const uint8_t* unit, int64_t units, Chunk* chunk) {
  int g = 0;
  for (int64_t u = 0; u < units; ++u) {
    const typename D::Unit scales_of_unit = D::LoadUnit(unit);
    const uint8_t* body = unit + D::kHeaderBytes;
    for (int i = 0; i < D::kGroups; ++i, ++g, body += D::kGroupBytes) {
      auto* codes = reinterpret_cast<__m256i*>(chunk->codes[g]);
#pragma GCC unroll 1
      for (int b = 0; b < 4; ++b, codes += 8) {
        D::FourPairs(body, b, [&](int s, __m256i w0, __m256i w1) __attribute__((always_inline)) {
          _mm256_store_si256(codes + 2 * s, w0);
          _mm256_store_si256(codes + 2 * s + 1, w1);
        });
      }
      const GroupScales& scales = D::Scales(scales_of_unit, body);
#pragma GCC unroll 8
      for (int h = 0; h < 2; ++h) {
        _mm256_store_ps(chunk->scale[g][h], scales.scale[h]);
        if constexpr (D::kHasMin) _mm256_store_ps(chunk->min[g][h], scales.min[h]);
        if constexpr (D::kHalfScales) {
#pragma GCC unroll 8
          for (int k_half = 0; k_half < 2; ++k_half) {
            _mm256_store_si256(reinterpret_cast<__m256i*>(chunk->half_scale[g][k_half][h]),
                               D::HalfScale(body, k_half, h));
          }
        }
      }
    }
    unit = body;
  }
}

// Sums of kRows rows over kPairs pairs of a group, from 0; advances the pointers past them.
template <int kRows, int kPairs>
OCTAVO_INLINE void SumPairs(const __m256i* codes, ValuePointers<kRows>& values,
                            __m256i sum[kRows][2]) {
  SetZero<kRows>(sum);
#pragma GCC unroll 16
  for (int t = 0; t < kPairs; ++t) {
    const __m256i w0 = _mm256_load_si256(codes + 2 * t);
    const __m256i w1 = _mm256_load_si256(codes + 2 * t + 1);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i pair = BroadcastPair(values.row[r] + 2 * t);
      AddProducts(sum[r][0], w0, pair);
      AddProducts(sum[r][1], w1, pair);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) values.row[r] += 2 * kPairs;
}

// kRows rows over the chunk's first `groups` groups, added to acc[kRows][16].
template <int kRows, bool kHasMin, bool kHalfScales>
__attribute__((noinline)) void ChunkRows(const Chunk& chunk, int64_t groups, const RowsView& x,
                                         float* acc) {
  RowsView at = x;
  for (int64_t g = 0; g < groups; ++g, at = at.Group(1)) {
    const auto* codes = reinterpret_cast<const __m256i*>(chunk.codes[g]);
    ValuePointers<kRows> values(at);
    __m256i sum[kRows][2];
    __m256 products[kRows][2];
    if constexpr (kHalfScales) {
      const auto* half_scale = reinterpret_cast<const __m256i*>(chunk.half_scale[g]);
      SumPairs<kRows, 8>(codes, values, sum);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int h = 0; h < 2; ++h) {
          products[r][h] = _mm256_cvtepi32_ps(_mm256_mullo_epi32(sum[r][h], half_scale[h]));
        }
      }
      SumPairs<kRows, 8>(codes + 16, values, sum);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int h = 0; h < 2; ++h) {
          products[r][h] = _mm256_add_ps(
              products[r][h], _mm256_cvtepi32_ps(_mm256_mullo_epi32(sum[r][h], half_scale[2 + h])));
        }
      }
    } else {
      SumPairs<kRows, 16>(codes, values, sum);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int h = 0; h < 2; ++h) products[r][h] = _mm256_cvtepi32_ps(sum[r][h]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 x_scale = _mm256_broadcast_ss(at.scales + r * at.group_stride);
      const __m256 x_sum = _mm256_broadcast_ss(at.sums + r * at.group_stride);
#pragma GCC unroll 8
      for (int h = 0; h < 2; ++h) {
        float* out = acc + 16 * r + 8 * h;
        const __m256 min = kHasMin ? _mm256_load_ps(chunk.min[g][h]) : _mm256_setzero_ps();
        _mm256_store_ps(out,
                        AddGroup<kHasMin>(_mm256_load_ps(out), products[r][h],
                                          _mm256_load_ps(chunk.scale[g][h]), min, x_scale, x_sum));
      }
    }
  }
}

template <typename D>
__attribute__((noinline)) void ManyRows(const uint8_t* unit, int64_t units, const RowsView& x,
                                        int64_t rows, float* out) {
  constexpr int64_t kChunkUnits = kChunkGroups / D::kGroups;
  constexpr int64_t kUnitBytes = D::kHeaderBytes + D::kGroups * D::kGroupBytes;
  __builtin_memset(out, 0, static_cast<size_t>(rows) * 16 * sizeof(float));
  Chunk chunk;
  RowsView at = x;
  for (int64_t u = 0; u < units; u += kChunkUnits, unit += kChunkUnits * kUnitBytes) {
    const int64_t count = units - u < kChunkUnits ? units - u : kChunkUnits;
    const int64_t groups = count * D::kGroups;
    UnpackChunk<D>(unit, count, &chunk);
    int64_t r = 0;
    for (; r + kRowBlock <= rows; r += kRowBlock) {
      ChunkRows<kRowBlock, D::kHasMin, D::kHalfScales>(chunk, groups, at.Row(r), out + 16 * r);
    }
    switch (rows - r) {
      case 3:
        ChunkRows<3, D::kHasMin, D::kHalfScales>(chunk, groups, at.Row(r), out + 16 * r);
        break;
      case 2:
        ChunkRows<2, D::kHasMin, D::kHalfScales>(chunk, groups, at.Row(r), out + 16 * r);
        break;
      case 1:
        ChunkRows<1, D::kHasMin, D::kHalfScales>(chunk, groups, at.Row(r), out + 16 * r);
        break;
      default:
        break;
    }
    at = at.Group(groups);
  }
}

// ---- One work item ----

template <typename D>
void SliceRows(const uint8_t* unit, int64_t units, const RowsView& x, int64_t rows, float* out) {
  switch (rows) {
    case 1:
      return FusedRows<D, 1>(unit, units, x, out);
    case 2:
      return FusedRows<D, 2>(unit, units, x, out);
    case 3:
      return FusedRows<D, 3>(unit, units, x, out);
    case 4:
      return FusedRows<D, 4>(unit, units, x, out);
    default:
      return ManyRows<D>(unit, units, x, rows, out);
  }
}

template <typename D>
void LinearTyped(const LinearArgs& args, WorkRange items) {
  constexpr int64_t kUnitBytes = D::kHeaderBytes + D::kGroups * D::kGroupBytes;
  const QuantizedRows& x = args.activations;
  const RowsView all{x.values, x.scales, x.sums, x.dim, x.dim / 32};
  const int64_t units = x.dim / 32 / D::kGroups;
  const int64_t slice_units = units / args.slice_count;
  ForEachTile(args, items, [&](int64_t panel, int slice, int64_t row0, int64_t rows, float* out) {
    const int64_t first = slice * slice_units;
    SliceRows<D>(args.weights.bytes + (panel * units + first) * kUnitBytes, slice_units,
                 all.Row(row0).Group(first * D::kGroups), rows, out);
  });
}

}  // namespace

void LinearInt16(const LinearArgs& args, WorkRange items) {
  switch (args.weights.type) {
    case TensorType::kQ4_0:
      return LinearTyped<DecoderQ4_0>(args, items);
    case TensorType::kQ4_1:
      return LinearTyped<DecoderQ4_1>(args, items);
    case TensorType::kQ5_0:
      return LinearTyped<DecoderQ5_0>(args, items);
    case TensorType::kQ5_1:
      return LinearTyped<DecoderQ5_1>(args, items);
    case TensorType::kQ8_0:
      return LinearTyped<DecoderQ8_0>(args, items);
    case TensorType::kQ4_K:
      return LinearTyped<DecoderQ4_K>(args, items);
    case TensorType::kQ5_K:
      return LinearTyped<DecoderQ5_K>(args, items);
    case TensorType::kQ6_K:
      return LinearTyped<DecoderQ6_K>(args, items);
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      return;  // LinearFloat's
  }
}

}  // namespace octavo::kernels::avx2
