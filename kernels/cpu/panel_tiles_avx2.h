#pragma once

// What the AVX2 products share: walking work items, adding slices as a tree, writing a tile out. In
// an unnamed namespace for the reason given in kernels/isa.h.

#include <cstdint>

#include "kernels/cpu/linear_ops_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

constexpr int kRowTile = 64;  // rows of a work item at most
static_assert(kRowTile == kLinearRowTile && kPanelWidth == 16);

// Calls multiply(panel, slice, row0, rows, out) for every slice of every item: `panel` the number
// of the panel, out[rows][16] to be set to the slice's sums.
template <typename Multiply>
inline __attribute__((always_inline)) void ForEachTile(const LinearArgs& args, WorkRange items,
                                                       Multiply multiply) {
  const int64_t row_count = args.activations.row_count;
  const int64_t tiles = (row_count + kRowTile - 1) / kRowTile;
  // Sums of finished subtrees, the largest first: after s slices there is one for each bit that is
  // set in s, so at most log2(kMaxSliceCount), and one being computed.
  alignas(64) float parts[4][kRowTile * 16];
  static_assert(kMaxSliceCount == 8);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t panel = item / tiles;
    const int64_t row0 = item % tiles * kRowTile;
    const int64_t rows = row_count - row0 < kRowTile ? row_count - row0 : kRowTile;
    int depth = 0;
    for (int slice = 0; slice < args.slice_count; ++slice) {
      multiply(panel, slice, row0, rows, parts[depth]);
      for (int bits = slice; (bits & 1) != 0; bits >>= 1, --depth) {
        for (int64_t i = 0; i < rows * 16; ++i) parts[depth - 1][i] += parts[depth][i];
      }
      ++depth;
    }
    const int64_t n0 = panel * 16;
    const int64_t width = args.weights.rows - n0 < 16 ? args.weights.rows - n0 : 16;
    float* out = args.output + row0 * args.output_stride + n0;
    for (int64_t r = 0; r < rows; ++r, out += args.output_stride) {
      __builtin_memcpy(out, parts[0] + 16 * r, static_cast<size_t>(width) * sizeof(float));
    }
  }
}

}  // namespace
}  // namespace octavo::kernels::avx2
