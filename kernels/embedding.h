#pragma once

// Token ids to the rows of the embedding table, in fp32: Dequantize by row (kernels/dequantize.h)
// under the name the model knows.

#include <cstdint>

#include "common/tensor_type.h"
#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct EmbeddingArgs {
  TensorType type = TensorType::kF32;
  const uint8_t* table = nullptr;  // [vocabulary, dim] as stored in the model file; any alignment
  const int32_t* token_ids = nullptr;  // [row_count]; REQUIRES: 0 <= id < vocabulary
  float* output = nullptr;             // [row_count, dim]
  int64_t row_count = 0;
  int64_t dim = 0;
};

// Work items are rows.
inline int64_t EmbeddingWorkCount(const EmbeddingArgs& args) { return args.row_count; }
OpFunction<EmbeddingArgs> EmbeddingFor(Isa isa);

}  // namespace octavo::kernels
