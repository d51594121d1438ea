#include "tools/octavo/capacity/model_shape.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace octavo::cli {
namespace {

using nlohmann::json;

// A whole number from 1 to `limit`; `fallback` where the key is absent or null.
absl::StatusOr<uint32_t> Number(const json& config, const char* key, uint32_t limit,
                                std::optional<uint32_t> fallback = std::nullopt) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (fallback) return *fallback;
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" is missing"));
  }
  if (!found->is_number_unsigned() || found->get<uint64_t>() < 1 ||
      found->get<uint64_t>() > limit) {
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" is ", found->dump(),
                                                   "; it must be a whole number from 1 to ",
                                                   limit));
  }
  return found->get<uint32_t>();
}

// Bytes of a weight in `torch_dtype` ("dtype" in newer files).
absl::StatusOr<uint64_t> WeightElementBytes(const json& config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (*found == "bfloat16" || *found == "float16") return 2;
    if (*found == "float32") return 4;
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" is ", found->dump(),
                                                   "; it must be bfloat16, float16 or float32"));
  }
  return 2;
}

}  // namespace

absl::StatusOr<ModelShape> ParseConfigJson(absl::string_view text) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("config: it is not a JSON object");
  const auto type = config.find("model_type");
  const std::string name =
      type != config.end() && type->is_string() ? type->get<std::string>() : "";
  if (name != "llama" && name != "mistral" && name != "qwen2" && name != "qwen3") {
    return absl::UnimplementedError(
        absl::StrCat("config: \"model_type\" is \"", name,
                     "\"; capacity knows llama, mistral, qwen2 and qwen3"));
  }
  ModelShape shape{.architecture = name};
  OCTAVO_ASSIGN_OR_RETURN(shape.layer_count, Number(config, "num_hidden_layers", kMaxLayerCount));
  OCTAVO_ASSIGN_OR_RETURN(shape.query_head_count,
                          Number(config, "num_attention_heads", kMaxHeadCount));
  OCTAVO_ASSIGN_OR_RETURN(shape.kv_head_count, Number(config, "num_key_value_heads", kMaxHeadCount,
                                                      shape.query_head_count));
  OCTAVO_ASSIGN_OR_RETURN(const uint32_t width, Number(config, "hidden_size", kMaxWidth));
  OCTAVO_ASSIGN_OR_RETURN(shape.head_dim,
                          Number(config, "head_dim", kMaxHeadDim, width / shape.query_head_count));
  OCTAVO_ASSIGN_OR_RETURN(shape.context_length,
                          Number(config, "max_position_embeddings", kMaxContextLength));
  OCTAVO_ASSIGN_OR_RETURN(const uint64_t vocab, Number(config, "vocab_size", kMaxVocabSize));
  OCTAVO_ASSIGN_OR_RETURN(const uint64_t ffn, Number(config, "intermediate_size", kMaxWidth));
  if (shape.query_head_count % shape.kv_head_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: \"num_key_value_heads\" is ", shape.kv_head_count,
                     "; it must divide \"num_attention_heads\", ", shape.query_head_count));
  }
  if (shape.head_dim == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: \"hidden_size\" is ", width,
                     "; it must be at least \"num_attention_heads\", ", shape.query_head_count));
  }

  const auto tied = config.find("tie_word_embeddings");
  const bool is_tied = tied != config.end() && tied->is_boolean() && tied->get<bool>();
  const uint64_t query = uint64_t{shape.query_head_count} * shape.head_dim;
  const uint64_t kv = uint64_t{shape.kv_head_count} * shape.head_dim;
  uint64_t layer = width * (query + 2 * kv) + query * width + 3 * width * ffn + 2 * uint64_t{width};
  if (name == "qwen2") layer += query + 2 * kv;                // projection biases
  if (name == "qwen3") layer += 2 * uint64_t{shape.head_dim};  // norms of queries and keys
  shape.parameter_count =
      shape.layer_count * layer + vocab * width * (is_tied ? 1 : 2) + uint64_t{width};
  if (!config.contains("quantization_config")) {
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t bytes, WeightElementBytes(config));
    shape.weight_bytes = shape.parameter_count * bytes;
  }
  return shape;
}

absl::StatusOr<ModelShape> ReadGgufShape(const std::string& path) {
  OCTAVO_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  OCTAVO_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(*file));
  ModelShape shape{.architecture = config.architecture,
                   .layer_count = config.layer_count,
                   .query_head_count = config.query_head_count,
                   .kv_head_count = config.kv_head_count,
                   .head_dim = config.head_dim,
                   .context_length = config.context_length};
  for (const GgufTensor& tensor : file->tensors()) {
    shape.parameter_count += tensor.rows * tensor.columns;
    shape.weight_bytes += tensor.data.size();
  }
  return shape;
}

}  // namespace octavo::cli
