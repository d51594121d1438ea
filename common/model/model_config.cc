#include "common/model/model_config.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/model/model_tensors.h"
#include "common/model/utf8.h"
#include "common/status.h"

namespace octavo {
namespace {

// Keys of one architecture, "llama.block_count" and so on, with range checks.
class Keys {
 public:
  Keys(const GgufFile& file, absl::string_view architecture)
      : file_(file), architecture_(architecture) {}

  std::string Name(absl::string_view key) const { return absl::StrCat(architecture_, ".", key); }
  bool Has(absl::string_view key) const { return file_.Has(Name(key)); }

  absl::StatusOr<uint32_t> Count(absl::string_view key, uint32_t limit) const {
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t value, file_.GetU64(Name(key)));
    if (value < 1 || value > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(key), " is ", value, "; it must be 1 to ", limit));
    }
    return static_cast<uint32_t>(value);
  }

  absl::StatusOr<uint32_t> CountOr(absl::string_view key, uint32_t limit, uint32_t missing) const {
    if (!Has(key)) return missing;
    return Count(key, limit);
  }

  // A finite number above 0.
  absl::StatusOr<float> PositiveOr(absl::string_view key, float missing) const {
    OCTAVO_ASSIGN_OR_RETURN(const float value, file_.GetF32Or(Name(key), missing));
    if (!std::isfinite(value) || value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(key), " is ", value, "; it must be finite and above 0"));
    }
    return value;
  }

  absl::StatusOr<absl::string_view> StringOr(absl::string_view key,
                                             absl::string_view missing) const {
    return file_.GetStringOr(Name(key), missing);
  }

 private:
  const GgufFile& file_;
  const std::string architecture_;
};

absl::Status ReadSizes(const Keys& keys, ModelConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(config.layer_count, keys.Count("block_count", kMaxLayerCount));
  OCTAVO_ASSIGN_OR_RETURN(config.width, keys.Count("embedding_length", kMaxWidth));
  OCTAVO_ASSIGN_OR_RETURN(config.ffn_width, keys.Count("feed_forward_length", kMaxWidth));
  OCTAVO_ASSIGN_OR_RETURN(config.context_length, keys.Count("context_length", kMaxContextLength));
  if (keys.Has("expert_count")) {
    return absl::UnimplementedError(
        absl::StrCat(keys.Name("expert_count"), " is set: mixtures of experts are not served"));
  }
  // Required, as a guess would go unnoticed: the value enters every norm.
  if (!keys.Has("attention.layer_norm_rms_epsilon")) {
    return absl::NotFoundError(absl::StrCat(
        "metadata key \"", keys.Name("attention.layer_norm_rms_epsilon"), "\" is missing"));
  }
  OCTAVO_ASSIGN_OR_RETURN(config.rms_epsilon,
                          keys.PositiveOr("attention.layer_norm_rms_epsilon", 0));
  return absl::OkStatus();
}

absl::Status ReadHeads(const Keys& keys, ModelConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(config.query_head_count,
                          keys.Count("attention.head_count", kMaxHeadCount));
  OCTAVO_ASSIGN_OR_RETURN(
      config.kv_head_count,
      keys.CountOr("attention.head_count_kv", kMaxHeadCount, config.query_head_count));
  if (config.query_head_count % config.kv_head_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(keys.Name("attention.head_count"), " is ", config.query_head_count,
                     "; it must be a multiple of ", keys.Name("attention.head_count_kv"), ", ",
                     config.kv_head_count));
  }
  if (!keys.Has("attention.key_length") && config.width % config.query_head_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(keys.Name("embedding_length"), " is ", config.width, "; without ",
                     keys.Name("attention.key_length"), " it must be a multiple of the ",
                     config.query_head_count, " query heads"));
  }
  OCTAVO_ASSIGN_OR_RETURN(config.head_dim, keys.CountOr("attention.key_length", kMaxHeadDim,
                                                        config.width / config.query_head_count));
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the head dimension is ", config.head_dim,
                                                   "; it must be even and 2 to ", kMaxHeadDim));
  }
  OCTAVO_ASSIGN_OR_RETURN(const uint32_t value_length,
                          keys.CountOr("attention.value_length", kMaxHeadDim, config.head_dim));
  if (value_length != config.head_dim) {
    return absl::UnimplementedError(
        absl::StrCat(keys.Name("attention.value_length"), " is ", value_length,
                     " and the key length ", config.head_dim, ": only equal lengths are served"));
  }
  return absl::OkStatus();
}

absl::Status ReadFrequencyFactors(const GgufFile& file, RopeConfig& rope) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return absl::OkStatus();
  const uint32_t pairs = rope.dimension_count / 2;
  if (tensor->type != TensorType::kF32 || tensor->rows != 1 || tensor->columns != pairs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor \"rope_freqs.weight\" is ", TraitsOf(tensor->type).name, " [", tensor->rows, ", ",
        tensor->columns, "]; it must be F32 [1, ", pairs, "], one factor for each rotated pair"));
  }
  const GgufArray<float> factors(tensor->data);
  for (uint32_t i = 0; i < pairs; ++i) {
    if (!std::isfinite(factors[i]) || factors[i] <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"rope_freqs.weight\" has factor ", i,
                                                     " of ", factors[i],
                                                     "; it must be finite and above 0"));
    }
    rope.frequency_factors.push_back(factors[i]);
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, const Keys& keys, uint32_t head_dim, RopeConfig& rope) {
  OCTAVO_ASSIGN_OR_RETURN(rope.dimension_count,
                          keys.CountOr("rope.dimension_count", head_dim, head_dim));
  if (rope.dimension_count % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(keys.Name("rope.dimension_count"), " is ",
                                                   rope.dimension_count, "; it must be even"));
  }
  OCTAVO_ASSIGN_OR_RETURN(rope.frequency_base, keys.PositiveOr("rope.freq_base", 10'000.0f));
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view scaling, keys.StringOr("rope.scaling.type", ""));
  if (!scaling.empty() && scaling != "none" && scaling != "linear") {
    return absl::UnimplementedError(
        absl::StrCat(keys.Name("rope.scaling.type"), " is \"", absl::CHexEscape(scaling),
                     "\"; none, linear and Llama 3's (as rope_freqs.weight) are served"));
  }
  // Early files have the factor of a linear scaling under another key, and no type.
  if (scaling == "linear" || (scaling.empty() && keys.Has("rope.scaling.factor"))) {
    OCTAVO_ASSIGN_OR_RETURN(rope.linear_factor, keys.PositiveOr("rope.scaling.factor", 1.0f));
  } else if (scaling.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(rope.linear_factor, keys.PositiveOr("rope.scale_linear", 1.0f));
  }
  return ReadFrequencyFactors(file, rope);
}

absl::Status ReadVocabulary(const GgufFile& file, const Keys& keys, ModelConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(const GgufTensor* embedding, file.GetTensor("token_embd.weight"));
  if (embedding->rows > kMaxVocabSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"token_embd.weight\" has ", embedding->rows,
                     " rows; the vocabulary is at most ", kMaxVocabSize));
  }
  config.vocab_size = static_cast<uint32_t>(embedding->rows);
  OCTAVO_ASSIGN_OR_RETURN(const uint32_t stated,
                          keys.CountOr("vocab_size", kMaxVocabSize, config.vocab_size));
  if (stated != config.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(keys.Name("vocab_size"), " is ", stated,
                                                   "; tensor \"token_embd.weight\" has ",
                                                   config.vocab_size, " rows"));
  }
  config.tied_embeddings = file.FindTensor("output.weight") == nullptr;
  return absl::OkStatus();
}

// The name travels in protobuf strings, metrics and logs.
absl::Status ReadName(const GgufFile& file, ModelConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view name,
                          file.GetStringOr("general.name", config.architecture));
  if (name.empty() || name.size() > kMaxModelNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "general.name has ", name.size(), " bytes; it must have 1 to ", kMaxModelNameBytes));
  }
  if (const auto offset = FindInvalidUtf8(name); offset.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("general.name is not UTF-8 at its byte ", *offset));
  }
  config.name = std::string(name);
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadLlama(const GgufFile& file) {
  const Keys keys(file, "llama");
  ModelConfig config;
  config.architecture = "llama";
  OCTAVO_RETURN_IF_ERROR(ReadName(file, config));
  config.rope.style = RopeStyle::kInterleaved;
  OCTAVO_RETURN_IF_ERROR(ReadSizes(keys, config));
  OCTAVO_RETURN_IF_ERROR(ReadHeads(keys, config));
  OCTAVO_RETURN_IF_ERROR(ReadRope(file, keys, config.head_dim, config.rope));
  OCTAVO_RETURN_IF_ERROR(ReadVocabulary(file, keys, config));
  OCTAVO_RETURN_IF_ERROR(FindModelTensors(file, config).status());
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view architecture,
                          file.GetString("general.architecture"));
  if (architecture == "llama") return ReadLlama(file);
  return absl::UnimplementedError(absl::StrCat(
      "general.architecture is \"", absl::CHexEscape(architecture), "\"; llama is served"));
}

}  // namespace octavo
