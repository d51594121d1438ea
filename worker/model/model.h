#pragma once

// A model on a backend: weights loaded from a file, and the decoder over them. Made once; the
// executor drives it.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "common/step_plan.h"
#include "worker/device/backend.h"
#include "worker/model/decoder.h"
#include "worker/model/memory_plan.h"

namespace octavo {

// What the kernels serve (kernels/kv_pages.h, kernels/rope.h).
constexpr uint32_t kHeadDimUnit = 16;
constexpr uint32_t kMaxServedHeadDim = 256;
constexpr uint32_t kMaxServedContext = 1 << 20;

struct ModelLimits {
  uint32_t max_tokens_per_step = 2048;  // rows of the activations, 1 to kMaxStepTokens
};

class Model {
 public:
  // Reads and checks the file, then repacks its weights into `backend`, which is borrowed and must
  // outlive the model. The file stays mapped for the embedding rows; pages of tensors that were
  // repacked are given back.
  static absl::StatusOr<std::unique_ptr<Model>> Load(std::unique_ptr<GgufFile> file,
                                                     Backend& backend, const ModelLimits& limits);

  const GgufFile& file() const { return *file_; }
  const ModelConfig& config() const { return config_; }
  const ModelLimits& limits() const { return limits_; }
  Backend& backend() const { return backend_; }
  const Decoder& decoder() const { return *decoder_; }

  KvLayout MakeKvLayout(uint32_t block_size, KvType kv_type) const {
    return config_.MakeKvLayout(block_size, kv_type);
  }
  // REQUIRES: layout.Validate() is ok and the layout is this model's.
  MemoryPlan Plan(const KvLayout& layout) const {
    return MakeMemoryPlan(backend_.Memory(), layout);
  }

 private:
  Model(std::unique_ptr<GgufFile> file, ModelConfig config, const ModelLimits& limits,
        Backend& backend)
      : file_(std::move(file)), config_(std::move(config)), limits_(limits), backend_(backend) {}

  std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
  ModelLimits limits_;
  Backend& backend_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace octavo
