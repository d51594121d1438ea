#include "worker/model/model.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/kv_pages.h"
#include "kernels/paged_attention.h"

namespace octavo {
namespace {

// What the kernels ask of a model, beyond what ReadModelConfig knows.
absl::Status CheckServed(const ModelConfig& config) {
  if (config.head_dim % kHeadDimUnit != 0 || config.head_dim > kMaxServedHeadDim) {
    return absl::UnimplementedError(absl::StrCat("head size ", config.head_dim,
                                                 " is not served: it must be a multiple of ",
                                                 kHeadDimUnit, ", at most ", kMaxServedHeadDim));
  }
  if (config.query_heads_per_kv_head() > kernels::kMaxAttentionGroup) {
    return absl::UnimplementedError(absl::StrCat(
        config.query_heads_per_kv_head(), " query heads per KV head are not served: at most ",
        kernels::kMaxAttentionGroup));
  }
  if (config.context_length > kMaxServedContext) {
    return absl::UnimplementedError(absl::StrCat("context length ", config.context_length,
                                                 " is not served: at most ", kMaxServedContext));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Load(std::unique_ptr<GgufFile> file, Backend& backend,
                                                   const ModelLimits& limits) {
  if (limits.max_tokens_per_step < 1 || limits.max_tokens_per_step > kMaxStepTokens) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens_per_step is ",
                                                   limits.max_tokens_per_step, "; it must be 1 to ",
                                                   kMaxStepTokens));
  }
  OCTAVO_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(*file));
  OCTAVO_RETURN_IF_ERROR(CheckServed(config));
  auto model = absl::WrapUnique(new Model(std::move(file), std::move(config), limits, backend));
  OCTAVO_ASSIGN_OR_RETURN(DecoderWeights weights,
                          LoadWeights(*model->file_, model->config_, backend));
  model->decoder_ = std::make_unique<Decoder>(model->config_, std::move(weights), backend,
                                              limits.max_tokens_per_step);
  return model;
}

}  // namespace octavo
