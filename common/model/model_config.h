#pragma once

// What a model is, as one value read from a GGUF file's metadata and checked against its tensors:
// sizes, positions, norms. In comes a GgufFile; out comes a ModelConfig whose every field is in
// range and agrees with the tensors, so that scheduler (context length, vocabulary, KV layout) and
// worker (weights, decoder) compute with it without further checks. Pure functions; any thread.
//
// Architectures: `llama` (SmolLM2, Llama 2 and 3, Mistral 7B). Another one joins by a reader beside
// ReadLlama in model_config.cc and a table of its tensors in model_tensors.cc.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "common/model/gguf.h"

namespace octavo {

constexpr uint32_t kMaxModelNameBytes = 256;
constexpr uint32_t kMaxLayerCount = 1024;
constexpr uint32_t kMaxWidth = 1 << 17;  // embedding and FFN width are at most this
constexpr uint32_t kMaxHeadCount = 1024;
constexpr uint32_t kMaxHeadDim = 512;
constexpr uint32_t kMaxVocabSize = 1 << 22;
constexpr uint32_t kMaxContextLength = 1 << 24;

// Which elements of a head rotate together. Pair i of `dimension_count / 2` is (2i, 2i + 1) or (i,
// i + dimension_count / 2). GGUF files of the llama architecture are permuted for interleaved
// pairs.
enum class RopeStyle : uint8_t { kInterleaved, kHalfSplit };

// Rotary position embedding (Su et al., arXiv 2104.09864). Pair i at position p turns by the angle
// p × frequency_base^(-2i / dimension_count) / (linear_factor × frequency_factor_i).
struct RopeConfig {
  RopeStyle style = RopeStyle::kInterleaved;
  uint32_t dimension_count =
      0;  // leading elements of each head that rotate; even, at most head_dim
  float frequency_base = 10'000.0f;
  float linear_factor = 1.0f;  // position interpolation (arXiv 2306.15595): > 0
  std::vector<float>
      frequency_factors;  // [dimension_count / 2], Llama 3's scaling, > 0; empty: all 1

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, UTF-8; the architecture where the file has none
  uint32_t layer_count = 0;
  uint32_t width = 0;      // of the residual stream (embedding_length)
  uint32_t ffn_width = 0;  // feed_forward_length
  uint32_t query_head_count = 0;
  uint32_t kv_head_count = 0;  // divides query_head_count
  uint32_t head_dim = 0;       // even; of queries, keys and values alike
  uint32_t context_length = 0;
  uint32_t vocab_size = 0;
  float rms_epsilon = 0;
  bool tied_embeddings = false;  // logits come from the embedding matrix: no output.weight
  RopeConfig rope;

  uint32_t query_heads_per_kv_head() const { return query_head_count / kv_head_count; }
  uint32_t query_width() const { return query_head_count * head_dim; }
  uint32_t kv_width() const { return kv_head_count * head_dim; }
  KvLayout MakeKvLayout(uint32_t block_size, KvType kv_type) const {
    return {.block_size = block_size,
            .layer_count = layer_count,
            .kv_head_count = kv_head_count,
            .head_dim = head_dim,
            .kv_type = kv_type};
  }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Reads and checks metadata, then that every tensor is there with its shape
// (common/model/model_tensors.h). Unimplemented names an architecture or scaling that is not
// served; InvalidArgument or NotFound names the key or tensor, its value and what it must be.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace octavo
