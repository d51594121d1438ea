#pragma once

// A model's weights on a backend. In come tensors by their part in the model
// (common/model/model_tensors.h), out come handles.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "worker/device/backend.h"

namespace octavo {

struct LayerWeights {
  VectorId attention_norm;
  MatrixId query, key, value;
  MatrixId attention_output;  // row-parallel: K in slices
  VectorId ffn_norm;
  MatrixId gate, up;
  MatrixId down;  // row-parallel: K in slices
};

struct DecoderWeights {
  EmbeddingId embedding;
  RopeId rope;
  std::vector<LayerWeights> layers;  // [layer_count]
  VectorId output_norm;
  MatrixId output;
};

// Slices in which row-parallel products reduce K: the largest power of two <= 8 that divides the
// KV-head count, so that every tensor-parallel size that divides it gives the same bits (design:
// one fixed tree).
uint32_t RowParallelSlices(uint32_t kv_head_count);

// Loads every tensor of `file`, matrix after matrix, giving mapped pages back once they are
// repacked. Errors name the tensor.
absl::StatusOr<DecoderWeights> LoadWeights(const GgufFile& file, const ModelConfig& config,
                                           Backend& backend);

}  // namespace octavo
