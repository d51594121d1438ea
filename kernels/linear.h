#pragma once

// Y = X * W^T: the matrix products of the model, for weights of every stored type, in one order of
// additions whatever the batch, the tile, the thread and the instruction set.
//
// Arithmetic of one output y[r][n] over a slice of K, from acc = +0 (x: quantised values of row r,
// s and t: scale and sum of the group; all operations IEEE fp32 with DAZ and FTZ, fma fused):
//   Q4_0, Q5_0, Q8_0   for each group of 32:  acc = fma(float(sum of q * x), d * s, acc)
//   Q4_1, Q5_1         for each group of 32:  the same, then acc = fma(m, t, acc)
//   Q4_K, Q5_K         as Q4_1 with d = d_super * scale and m = -(dmin_super * min), both products
//   exact Q6_K               for each group of 32:  acc = fma(float(s0 * c0) + float(s1 * c1),
//   d_super * s, acc), s0 and s1 the sums of the
//                      two halves of 16, c0 and c1 their int8 scales
//   BF16               for each group of 32:  e = fma chain over even k from +0, o = over odd k,
//   acc = acc + (e + o) F16, F32           for each k:            acc = fma(w, x, acc)
// The sums are exact in int32. |q| * 32767 * 32 is at most 15,728,160 (4 bits), 32,504,864 (Q5_1,
// Q5_K), 16,776,704 (Q5_0, |q| <= 16) and 134,213,632 (Q8_0, |q| <= 128); Q6_K: 32 * 32767 * 16 *
// 128 = 2,147,418,112 < 2^31 = 2,147,483,648.
//
// Slices: K is cut into `slice_count` equal parts, each summed as above, and the parts are added as
// a binary tree: neighbours first,
// ((y0 + y1) + (y2 + y3)) + ... So a tensor-parallel group of any size that divides the count, each
// rank summing its own slices, reaches the same bits.
//
// Non-finite values: a NaN scale (kernels/quantize_rows.h), a NaN or an infinity in a BF16 or fp32
// row, or a non-finite weight scale makes the outputs it enters NaN or infinite and touches no
// other row.

#include <cstdint>

#include "common/tensor_type.h"
#include "kernels/isa.h"
#include "kernels/pack.h"
#include "kernels/quantize_rows.h"
#include "kernels/work.h"

namespace octavo::kernels {

inline constexpr int kMaxSliceCount = 8;

// The number of slices a product can really be cut into: the largest power of two <= min(wanted, 8)
// for which every slice is a whole number of PackUnit(type). At least 1.
constexpr int SliceCountFor(TensorType type, int64_t columns, int64_t wanted) {
  int count = 1;
  while (count < kMaxSliceCount && 2 * count <= wanted &&
         columns % (2 * count * PackUnit(type)) == 0) {
    count *= 2;
  }
  return count;
}

struct LinearArgs {
  PackedMatrix weights;       // [N, K]
  QuantizedRows activations;  // [row_count, K] in ActivationFormatFor(weights.type)
  float* output = nullptr;    // [row_count, N]; nothing past N is written
  int64_t output_stride = 0;  // floats from one output row to the next
  int slice_count = 1;        // REQUIRES: a value that SliceCountFor(weights.type, K, .) can return
};

// Rows that one work item multiplies; large batches fall into tiles of this many rows.
inline constexpr int64_t kLinearRowTile = 64;

// Work items are (panel, tile of rows), the tiles of a panel one after the other, so that a range
// reads its weights once.
inline int64_t LinearWorkCount(const LinearArgs& args) {
  const int64_t tiles = (args.activations.row_count + kLinearRowTile - 1) / kLinearRowTile;
  return args.weights.panel_count() * tiles;
}
OpFunction<LinearArgs> LinearFor(Isa isa);

}  // namespace octavo::kernels
