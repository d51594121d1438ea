// Compiled with -mavx2 -mfma -mf16c; see the rule in kernels/isa.h.
//
// Products of BF16, F16 and F32 weights. Lanes run over the 16 outputs of a panel; each output
// keeps the chains that kernels/linear.h writes down, so a row alone is bound by the latency of its
// chains and more rows only fill the gaps.

#include <immintrin.h>

#include "kernels/cpu/group_decoders_avx2.h"
#include "kernels/cpu/linear_ops_avx2.h"
#include "kernels/cpu/panel_tiles_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

constexpr int kPrefetchBytes = 4096;

// ---- BF16: per 32 inputs an even and an odd chain from +0, then acc + (even + odd). ----

struct Bf16Weights {
  using Value = uint16_t;
  static constexpr int kGroupBytes = 1024;
  static constexpr int kRowBlock = 2;  // 4 chains a row and 4 weights fit in 16 registers

  static const Value* Rows(const QuantizedRows& x) { return x.bf16; }

  template <int kRows>
  static OCTAVO_INLINE void AddGroup(const uint8_t* body, const Value* x, int64_t stride,
                                     __m256 acc[kRows][2]) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    __m256 even[kRows][2], odd[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int h = 0; h < 2; ++h) even[r][h] = odd[r][h] = _mm256_setzero_ps();
    }
#pragma GCC unroll 4
    for (int t = 0; t < 16; ++t) {
      __m256 w_even[2], w_odd[2];
#pragma GCC unroll 8
      for (int h = 0; h < 2; ++h) {
        const __m256i pair = Load(body + 64 * t + 32 * h);
        w_even[h] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
        w_odd[h] = _mm256_castsi256_ps(_mm256_and_si256(pair, upper));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int32_t bits;
        __builtin_memcpy(&bits, x + r * stride + 2 * t, sizeof(bits));
        const __m256i pair = _mm256_set1_epi32(bits);
        const __m256 x_even = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
        const __m256 x_odd = _mm256_castsi256_ps(_mm256_and_si256(pair, upper));
#pragma GCC unroll 8
        for (int h = 0; h < 2; ++h) {
          even[r][h] = _mm256_fmadd_ps(w_even[h], x_even, even[r][h]);
          odd[r][h] = _mm256_fmadd_ps(w_odd[h], x_odd, odd[r][h]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int h = 0; h < 2; ++h) {
        acc[r][h] = _mm256_add_ps(acc[r][h], _mm256_add_ps(even[r][h], odd[r][h]));
      }
    }
  }
};

// ---- F16, F32: one chain over K. ----

template <int kElementBytes>
struct WideWeights {
  using Value = float;
  static constexpr int kGroupBytes = 32 * 16 * kElementBytes;
  static constexpr int kRowBlock = 4;

  static const Value* Rows(const QuantizedRows& x) { return x.f32; }

  static OCTAVO_INLINE __m256 LoadEight(const uint8_t* bytes) {
    if constexpr (kElementBytes == 2) return LoadF16x8(bytes);
    return _mm256_castsi256_ps(Load(bytes));
  }

  template <int kRows>
  static OCTAVO_INLINE void AddGroup(const uint8_t* body, const Value* x, int64_t stride,
                                     __m256 acc[kRows][2]) {
#pragma GCC unroll 4
    for (int k = 0; k < 32; ++k) {
      const __m256 w0 = LoadEight(body + 16 * kElementBytes * k);
      const __m256 w1 = LoadEight(body + 16 * kElementBytes * k + 8 * kElementBytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256 value = _mm256_broadcast_ss(x + r * stride + k);
        acc[r][0] = _mm256_fmadd_ps(w0, value, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(w1, value, acc[r][1]);
      }
    }
  }
};

// kRows rows of a slice of `groups` groups, to out[kRows][16].
template <typename W, int kRows>
void SliceBlock(const uint8_t* body, int64_t groups, const typename W::Value* x, int64_t stride,
                float* out) {
  __m256 acc[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, body += W::kGroupBytes, x += 32) {
    for (int i = 0; i < W::kGroupBytes; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(body) + kPrefetchBytes + i, _MM_HINT_T0);
    }
    W::template AddGroup<kRows>(body, x, stride, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(out + 16 * r, acc[r][0]);
    _mm256_storeu_ps(out + 16 * r + 8, acc[r][1]);
  }
}

template <typename W>
void SliceRows(const uint8_t* body, int64_t groups, const typename W::Value* x, int64_t stride,
               int64_t rows, float* out) {
  int64_t r = 0;
  for (; r + W::kRowBlock <= rows; r += W::kRowBlock) {
    SliceBlock<W, W::kRowBlock>(body, groups, x + r * stride, stride, out + 16 * r);
  }
  const int64_t rest = rows - r;
  x += r * stride;
  out += 16 * r;
  if constexpr (W::kRowBlock > 2) {
    if (rest == 3) SliceBlock<W, 3>(body, groups, x, stride, out);
    if (rest == 2) SliceBlock<W, 2>(body, groups, x, stride, out);
  }
  if (rest == 1) SliceBlock<W, 1>(body, groups, x, stride, out);
}

template <typename W>
void LinearTyped(const LinearArgs& args, WorkRange items) {
  const QuantizedRows& x = args.activations;
  const int64_t groups = x.dim / 32;
  const int64_t slice_groups = groups / args.slice_count;
  ForEachTile(args, items, [&](int64_t panel, int slice, int64_t row0, int64_t rows, float* out) {
    const int64_t first = slice * slice_groups;
    SliceRows<W>(args.weights.bytes + (panel * groups + first) * W::kGroupBytes, slice_groups,
                 W::Rows(x) + row0 * x.dim + 32 * first, x.dim, rows, out);
  });
}

}  // namespace

void LinearFloat(const LinearArgs& args, WorkRange items) {
  switch (args.weights.type) {
    case TensorType::kBF16:
      return LinearTyped<Bf16Weights>(args, items);
    case TensorType::kF16:
      return LinearTyped<WideWeights<2>>(args, items);
    case TensorType::kF32:
      return LinearTyped<WideWeights<4>>(args, items);
    default:
      return;  // LinearInt16's
  }
}

}  // namespace octavo::kernels::avx2
