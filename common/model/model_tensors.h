#pragma once

// The tensors of a model by their part in it instead of by name. In come a GgufFile and the
// ModelConfig read from it; out come borrowed pointers into that file, each of the shape written
// beside it ([rows, columns]; a product maps columns to rows). Values; valid as long as the file.

#include <vector>

#include "absl/status/statusor.h"
#include "common/model/gguf.h"
#include "common/model/model_config.h"

namespace octavo {

struct LayerTensors {
  const GgufTensor* attention_norm = nullptr;    // [width], F32
  const GgufTensor* query = nullptr;             // [query_width, width]
  const GgufTensor* key = nullptr;               // [kv_width, width]
  const GgufTensor* value = nullptr;             // [kv_width, width]
  const GgufTensor* attention_output = nullptr;  // [width, query_width]
  const GgufTensor* ffn_norm = nullptr;          // [width], F32
  const GgufTensor* ffn_gate = nullptr;          // [ffn_width, width]
  const GgufTensor* ffn_up = nullptr;            // [ffn_width, width]
  const GgufTensor* ffn_down = nullptr;          // [width, ffn_width]
};

struct ModelTensors {
  const GgufTensor* token_embedding = nullptr;  // [vocab_size, width]
  const GgufTensor* output_norm = nullptr;      // [width], F32
  const GgufTensor* output =
      nullptr;  // [vocab_size, width]; token_embedding itself where embeddings are tied
  std::vector<LayerTensors> layers;  // [layer_count]
};

// NotFound names a missing tensor; InvalidArgument a wrong shape or type, with the expected one;
// Unimplemented a tensor that the architecture as served here does not use (a bias, experts): it
// would change the result and must not be ignored.
absl::StatusOr<ModelTensors> FindModelTensors(const GgufFile& file, const ModelConfig& config);

}  // namespace octavo
