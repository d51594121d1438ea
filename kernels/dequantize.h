#pragma once

// Rows of a stored tensor to fp32: embedding look-up, norm weights, and the oracle of the tests.
// Bit-equal to the Python `gguf` package's `dequantize` for every tensor type (finite scales; where
// a scale is NaN or infinite the result is NaN or infinite in the same places). Block formats after
// the ggml reference (ggml-quants.c) and the GGUF specification.

#include <cstdint>

#include "common/tensor_type.h"
#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct DequantizeArgs {
  TensorType type = TensorType::kF32;
  const uint8_t* table = nullptr;  // [table rows, columns], rows of RowBytes(type, columns) one
                                   // after the other; any alignment
  const int32_t* row_indices = nullptr;  // [row_count] rows of `table`; null: rows 0, 1, 2, ...
  int64_t row_count = 0;
  int64_t columns = 0;        // REQUIRES: a multiple of the type's block_elements
  float* output = nullptr;    // [row_count, columns]
  int64_t output_stride = 0;  // floats from one output row to the next
};

// Work items are output rows.
inline int64_t DequantizeWorkCount(const DequantizeArgs& args) { return args.row_count; }
OpFunction<DequantizeArgs> DequantizeFor(Isa isa);

}  // namespace octavo::kernels
