#include "worker/model/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/model_tensors.h"
#include "common/status.h"
#include "kernels/linear.h"

namespace octavo {
namespace {

MatrixSource SourceOf(const GgufTensor& tensor) {
  return {.type = tensor.type,
          .rows = static_cast<uint32_t>(tensor.rows),
          .columns = static_cast<uint32_t>(tensor.columns),
          .data = tensor.data};
}

absl::Status Named(const GgufTensor& tensor, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("tensor ", tensor.name, ": ", status.message()));
}

// Gives back the mapped pages that lie wholly inside the tensor: they were repacked and would only
// count twice. They are read from the file again should anybody look.
void ReleasePages(const GgufTensor& tensor) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin =
      (reinterpret_cast<uintptr_t>(tensor.data.data()) + page - 1) / page * page;
  const uintptr_t end =
      reinterpret_cast<uintptr_t>(tensor.data.data() + tensor.data.size()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address rounded to its page.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

class Loader {
 public:
  Loader(const GgufFile& file, Backend& backend) : file_(file), backend_(backend) {}

  absl::StatusOr<MatrixId> Matrix(const GgufTensor& tensor, uint32_t slice_count) {
    absl::StatusOr<MatrixId> id = backend_.LoadMatrix(SourceOf(tensor), slice_count);
    if (!id.ok()) return Named(tensor, id.status());
    // Only a mapping can be read again: bytes that a caller of GgufFile::Parse owns would be lost.
    if (file_.is_mapped()) ReleasePages(tensor);
    return id;
  }

  // REQUIRES: F32, as FindModelTensors checked.
  VectorId Vector(const GgufTensor& tensor) {
    std::vector<float> values(tensor.rows * tensor.columns);
    std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(float));
    return backend_.LoadVector(values);
  }

  absl::StatusOr<LayerWeights> Layer(const LayerTensors& tensors, uint32_t slice_count) {
    LayerWeights layer;
    layer.attention_norm = Vector(*tensors.attention_norm);
    OCTAVO_ASSIGN_OR_RETURN(layer.query, Matrix(*tensors.query, 1));
    OCTAVO_ASSIGN_OR_RETURN(layer.key, Matrix(*tensors.key, 1));
    OCTAVO_ASSIGN_OR_RETURN(layer.value, Matrix(*tensors.value, 1));
    OCTAVO_ASSIGN_OR_RETURN(layer.attention_output, Matrix(*tensors.attention_output, slice_count));
    layer.ffn_norm = Vector(*tensors.ffn_norm);
    OCTAVO_ASSIGN_OR_RETURN(layer.gate, Matrix(*tensors.ffn_gate, 1));
    OCTAVO_ASSIGN_OR_RETURN(layer.up, Matrix(*tensors.ffn_up, 1));
    OCTAVO_ASSIGN_OR_RETURN(layer.down, Matrix(*tensors.ffn_down, slice_count));
    return layer;
  }

 private:
  const GgufFile& file_;
  Backend& backend_;
};

}  // namespace

uint32_t RowParallelSlices(uint32_t kv_head_count) {
  uint32_t slices = 1;
  while (slices < kernels::kMaxSliceCount && kv_head_count % (2 * slices) == 0) slices *= 2;
  return slices;
}

absl::StatusOr<DecoderWeights> LoadWeights(const GgufFile& file, const ModelConfig& config,
                                           Backend& backend) {
  OCTAVO_ASSIGN_OR_RETURN(const ModelTensors tensors, FindModelTensors(file, config));
  Loader loader(file, backend);
  DecoderWeights weights;
  const uint32_t slice_count = RowParallelSlices(config.kv_head_count);
  for (const LayerTensors& layer : tensors.layers) {
    OCTAVO_ASSIGN_OR_RETURN(LayerWeights loaded, loader.Layer(layer, slice_count));
    weights.layers.push_back(loaded);
  }
  weights.output_norm = loader.Vector(*tensors.output_norm);
  OCTAVO_ASSIGN_OR_RETURN(weights.output, loader.Matrix(*tensors.output, 1));
  absl::StatusOr<EmbeddingId> embedding = backend.LoadEmbedding(SourceOf(*tensors.token_embedding));
  if (!embedding.ok()) return Named(*tensors.token_embedding, embedding.status());
  weights.embedding = *embedding;
  weights.rope = backend.LoadRope(config.rope, config.context_length);
  return weights;
}

}  // namespace octavo
