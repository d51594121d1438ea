#pragma once

// Y = X * W^T: the matrix products of the model, for weights of every stored type, in one order of
// additions whatever the batch, the tile, the thread and the instruction set.
//
// Arithmetic of one output y[r][n] over a slice of K, from acc = +0. q: the code with its offset
// taken off, x: the quantised values of row r, s and t: scale and sum of the row's group. All
// operations are IEEE fp32, to nearest even, with DAZ and FTZ; fma is fused, nothing else is.
//
//   Q4_0, Q5_0, Q8_0   per group of 32:  acc = fma(float(sum of q * x), d * s, acc)
//
//   Q4_1, Q5_1         per group of 32:  the same, then acc = fma(m, t, acc)
//
//   Q4_K, Q5_K         as Q4_1, with d = d_super * scale and m = -(dmin_super * min), both exact
//
//   Q6_K               per group of 32:  p = float(h0 * c0) + float(h1 * c1), h0 and h1 the sums of
//                                        its halves of 16, c0 and c1 their int8 scales;
//                                        acc = fma(p, d_super * s, acc)
//
//   BF16               per group of 32:  e = fma chain over even k from +0, o = over odd k,
//                                        acc = acc + (e + o), which is what TDPBF16PS computes
//
//   F16, F32           per k:            acc = fma(w, x, acc)
//
// The sums are exact in int32. |q| * 32767 * 32 is at most 8,388,352 (Q4_0), 15,728,160 (Q4_1,
// Q4_K), 16,776,704 (Q5_0), 32,504,864 (Q5_1, Q5_K) and 134,213,632 (Q8_0, |q| <= 128); Q6_K: 32 *
// 32767 * 16 * 128 = 2,147,418,112 < 2^31 = 2,147,483,648.
//
// Slices: K is cut into `slice_count` equal parts, each summed as above, and the parts are added as
// a binary tree, neighbours first: ((y0 + y1) + (y2 + y3)) + ((y4 + y5) + (y6 + y7)). A
// tensor-parallel group of any size that divides the count reaches the same bits: each rank
// computes its own subtree (slice_count / size slices over its columns), and the sum over ranks is
// the rest of the tree.
//
// Non-finite values: a NaN scale (kernels/quantize_rows.h), a NaN or an infinity in a BF16 or fp32
// row, or a non-finite weight scale makes the outputs it enters NaN or infinite and touches no
// other row. A NaN is equal to a NaN between instruction sets; its sign and payload are not
// promised.

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
