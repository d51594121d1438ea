#pragma once

// What capacity planning needs to know of a model, read from a GGUF file or from a Hugging Face
// config.json, without its weights. Pure functions.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::cli {

struct ModelShape {
  std::string architecture;
  uint32_t layer_count = 0;
  uint32_t query_head_count = 0;
  uint32_t kv_head_count = 0;
  uint32_t head_dim = 0;
  uint32_t context_length = 0;
  uint64_t parameter_count = 0;
  uint64_t weight_bytes = 0;  // 0: not known (a quantised config.json)

  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// config.json of model_type llama, mistral, qwen2 or qwen3; weights counted in its torch_dtype.
// Sliding windows count as full attention. InvalidArgument naming the key, its value and what it
// must be; Unimplemented naming another model_type.
absl::StatusOr<ModelShape> ParseConfigJson(absl::string_view text);

// A GGUF file of an architecture that is served (common/model/model_config.h); weights as the file
// stores them.
absl::StatusOr<ModelShape> ReadGgufShape(const std::string& path);

}  // namespace octavo::cli
