#include "common/model/model_tensors.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace octavo {
namespace {

// Finds tensors, checks their shapes and remembers which of the file's were asked for.
class Finder {
 public:
  explicit Finder(const GgufFile& file) : file_(file) {}

  absl::Status Matrix(const std::string& name, uint64_t rows, uint64_t columns,
                      const GgufTensor*& tensor) {
    OCTAVO_ASSIGN_OR_RETURN(tensor, file_.GetTensor(name));
    used_.insert(tensor);
    if (tensor->rows == rows && tensor->columns == columns) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\" has ", tensor->rows,
                                                   " rows of ", tensor->columns, "; it must have ",
                                                   rows, " rows of ", columns));
  }

  absl::Status Norm(const std::string& name, uint64_t width, const GgufTensor*& tensor) {
    OCTAVO_RETURN_IF_ERROR(Matrix(name, 1, width, tensor));
    if (tensor->type == TensorType::kF32) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor \"", name, "\" is ", TraitsOf(tensor->type).name, "; a norm must be F32"));
  }

  void Use(absl::string_view name) { used_.insert(file_.FindTensor(name)); }

  absl::Status RefuseOthers(const std::string& architecture) const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.contains(&tensor)) continue;
      return absl::UnimplementedError(absl::StrCat("tensor \"", absl::CHexEscape(tensor.name),
                                                   "\" has no part in the architecture ",
                                                   architecture, " as served here"));
    }
    return absl::OkStatus();
  }

 private:
  const GgufFile& file_;
  absl::flat_hash_set<const GgufTensor*> used_;
};

absl::Status FindLayer(const std::string& prefix, const ModelConfig& config, Finder& finder,
                       LayerTensors& layer) {
  const uint32_t width = config.width;
  const uint32_t query = config.query_width();
  const uint32_t kv = config.kv_width();
  const uint32_t ffn = config.ffn_width;
  OCTAVO_RETURN_IF_ERROR(finder.Norm(prefix + "attn_norm.weight", width, layer.attention_norm));
  OCTAVO_RETURN_IF_ERROR(finder.Matrix(prefix + "attn_q.weight", query, width, layer.query));
  OCTAVO_RETURN_IF_ERROR(finder.Matrix(prefix + "attn_k.weight", kv, width, layer.key));
  OCTAVO_RETURN_IF_ERROR(finder.Matrix(prefix + "attn_v.weight", kv, width, layer.value));
  OCTAVO_RETURN_IF_ERROR(
      finder.Matrix(prefix + "attn_output.weight", width, query, layer.attention_output));
  OCTAVO_RETURN_IF_ERROR(finder.Norm(prefix + "ffn_norm.weight", width, layer.ffn_norm));
  OCTAVO_RETURN_IF_ERROR(finder.Matrix(prefix + "ffn_gate.weight", ffn, width, layer.ffn_gate));
  OCTAVO_RETURN_IF_ERROR(finder.Matrix(prefix + "ffn_up.weight", ffn, width, layer.ffn_up));
  return finder.Matrix(prefix + "ffn_down.weight", width, ffn, layer.ffn_down);
}

}  // namespace

absl::StatusOr<ModelTensors> FindModelTensors(const GgufFile& file, const ModelConfig& config) {
  Finder finder(file);
  ModelTensors tensors;
  OCTAVO_RETURN_IF_ERROR(
      finder.Matrix("token_embd.weight", config.vocab_size, config.width, tensors.token_embedding));
  OCTAVO_RETURN_IF_ERROR(finder.Norm("output_norm.weight", config.width, tensors.output_norm));
  tensors.output = tensors.token_embedding;
  if (!config.tied_embeddings) {
    OCTAVO_RETURN_IF_ERROR(
        finder.Matrix("output.weight", config.vocab_size, config.width, tensors.output));
  }
  for (uint32_t i = 0; i < config.layer_count; ++i) {
    OCTAVO_RETURN_IF_ERROR(
        FindLayer(absl::StrCat("blk.", i, "."), config, finder, tensors.layers.emplace_back()));
  }
  finder.Use("rope_freqs.weight");  // became ModelConfig::rope.frequency_factors
  OCTAVO_RETURN_IF_ERROR(finder.RefuseOthers(config.architecture));
  return tensors;
}

}  // namespace octavo
