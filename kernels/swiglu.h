#pragma once

// The gate of the feed-forward layer (Shazeer, arXiv 2002.05202).  y = silu(gate) * up, with silu
// of kernels/math.h. gate and up may be the two halves of one product's rows: both have the same
// row stride.

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct SwiGluArgs {
  const float* gate = nullptr;  // [row_count, dim]
  const float* up = nullptr;    // [row_count, dim]
  int64_t input_stride = 0;     // floats from one row of gate, and of up, to the next
  float* y = nullptr;  // [row_count, dim]; may be gate or up if output_stride == input_stride
  int64_t output_stride = 0;
  int64_t row_count = 0;
  int64_t dim = 0;
};

// Work items are rows.
inline int64_t SwiGluWorkCount(const SwiGluArgs& args) { return args.row_count; }
OpFunction<SwiGluArgs> SwiGluFor(Isa isa);

}  // namespace octavo::kernels
