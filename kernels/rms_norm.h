#pragma once

// Root-mean-square norm (Zhang and Sennrich, arXiv 1910.07467), with the residual sum that usually
// precedes it. Per row, all operations IEEE fp32:
//   x      = x + residual, written back: the bits of Add (only if there is a residual)
//   square = sum of x[i]^2 in 16 virtual lanes: lane j is the fma chain over i = j, j + 16, ...
//            from +0; lanes are added by the halving tree of kernels/math.h
//   scale  = 1 / sqrt(square / dim + epsilon)
//   y[i]   = (x[i] * scale) * weight[i]

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct RmsNormArgs {
  float* x = nullptr;               // [row_count, dim]; written only if there is a residual
  const float* residual = nullptr;  // [row_count, dim], or null
  const float* weight = nullptr;    // [dim]
  float* y = nullptr;               // [row_count, dim]; may be x only if there is no residual
  int64_t row_count = 0;
  int64_t dim = 0;  // any
  float epsilon = 1e-5f;
};

// Work items are rows.
inline int64_t RmsNormWorkCount(const RmsNormArgs& args) { return args.row_count; }
OpFunction<RmsNormArgs> RmsNormFor(Isa isa);

}  // namespace octavo::kernels
