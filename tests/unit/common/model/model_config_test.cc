#include "common/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "common/model/model_tensors.h"
#include "tests/unit/common/model/gguf_builder.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;

struct Read {
  std::string bytes;
  std::unique_ptr<GgufFile> file;
  absl::StatusOr<ModelConfig> config;
};

Read ReadFrom(const GgufBuilder& builder) {
  Read read{.bytes = builder.Build(), .file = nullptr, .config = absl::UnknownError("not parsed")};
  auto file = GgufFile::Parse(BytesOf(read.bytes));
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return read;
  read.file = *std::move(file);
  read.config = ReadModelConfig(*read.file);
  return read;
}

// "CODE: message" of a file that must be refused.
std::string Refusal(const GgufBuilder& builder) {
  const Read read = ReadFrom(builder);
  EXPECT_FALSE(read.config.ok());
  return read.config.status().ToString();
}

TEST(ModelConfigTest, ReadsALlamaFile) {
  const Read read = ReadFrom(SmallLlama(2));
  ASSERT_TRUE(read.config.ok()) << read.config.status();
  EXPECT_EQ(*read.config, (ModelConfig{.architecture = "llama",
                                       .name = "small",
                                       .layer_count = 2,
                                       .width = 64,
                                       .ffn_width = 96,
                                       .query_head_count = 4,
                                       .kv_head_count = 2,
                                       .head_dim = 16,
                                       .context_length = 128,
                                       .vocab_size = 40,
                                       .rms_epsilon = 1e-5f,
                                       .tied_embeddings = true,
                                       .rope = {.style = RopeStyle::kInterleaved,
                                                .dimension_count = 16,
                                                .frequency_base = 50'000.0f,
                                                .linear_factor = 1.0f,
                                                .frequency_factors = {}}}));
  EXPECT_EQ(read.config->query_heads_per_kv_head(), 2u);
  EXPECT_EQ(read.config->query_width(), 64u);
  EXPECT_EQ(read.config->kv_width(), 32u);
  EXPECT_EQ(read.config->MakeKvLayout(16, KvType::kF16).bytes_per_token(), 2u * 2 * 2 * 16 * 2);
}

TEST(ModelConfigTest, FindsTensorsByTheirPart) {
  const Read read = ReadFrom(SmallLlama(2).Tensor("output.weight", TensorType::kQ6_K, {256, 10}));
  EXPECT_EQ(read.config.status().message(),
            "tensor \"output.weight\" has 10 rows of 256; it must have 40 rows of 64");
  const Read good = ReadFrom(SmallLlama(2).Tensor("output.weight", TensorType::kQ8_0, {64, 40}));
  ASSERT_TRUE(good.config.ok()) << good.config.status();
  EXPECT_FALSE(good.config->tied_embeddings);
  const auto tensors = FindModelTensors(*good.file, *good.config);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->output->name, "output.weight");
  EXPECT_EQ(tensors->token_embedding->name, "token_embd.weight");
  ASSERT_EQ(tensors->layers.size(), 2u);
  EXPECT_EQ(tensors->layers[1].attention_norm->name, "blk.1.attn_norm.weight");
  EXPECT_EQ(tensors->layers[1].query->name, "blk.1.attn_q.weight");
  EXPECT_EQ(tensors->layers[1].key->name, "blk.1.attn_k.weight");
  EXPECT_EQ(tensors->layers[1].value->name, "blk.1.attn_v.weight");
  EXPECT_EQ(tensors->layers[1].attention_output->name, "blk.1.attn_output.weight");
  EXPECT_EQ(tensors->layers[1].ffn_norm->name, "blk.1.ffn_norm.weight");
  EXPECT_EQ(tensors->layers[1].ffn_gate->name, "blk.1.ffn_gate.weight");
  EXPECT_EQ(tensors->layers[1].ffn_up->name, "blk.1.ffn_up.weight");
  EXPECT_EQ(tensors->layers[1].ffn_down->name, "blk.1.ffn_down.weight");
}

TEST(ModelConfigTest, TiedEmbeddingsMakeTheEmbeddingTheOutput) {
  const Read read = ReadFrom(SmallLlama());
  ASSERT_TRUE(read.config.ok()) << read.config.status();
  const auto tensors = FindModelTensors(*read.file, *read.config);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->output, tensors->token_embedding);
}

TEST(ModelConfigTest, TakesAHeadLengthOfItsOwn) {
  GgufBuilder builder = SmallLlama();
  builder.U32("llama.attention.head_count", 2).U32("llama.attention.head_count_kv", 1);
  builder.U32("llama.attention.key_length", 32).U32("llama.attention.value_length", 32);
  builder.U32("llama.rope.dimension_count", 16);
  const Read read = ReadFrom(builder);
  ASSERT_TRUE(read.config.ok()) << read.config.status();
  EXPECT_EQ(read.config->head_dim, 32u);
  EXPECT_EQ(read.config->rope.dimension_count, 16u);
}

TEST(ModelConfigTest, KvHeadsDefaultToQueryHeads) {
  GgufBuilder builder = SmallLlama();
  builder.Remove("llama.attention.head_count_kv");
  EXPECT_EQ(Refusal(builder),
            "INVALID_ARGUMENT: tensor \"blk.0.attn_k.weight\" has 32 rows of 64; it must have 64 "
            "rows of 64");
}

TEST(ModelConfigTest, ReadsLinearRopeScalingUnderBothItsKeys) {
  GgufBuilder typed = SmallLlama();
  typed.String("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(ReadFrom(typed).config->rope.linear_factor, 4.0f);
  EXPECT_EQ(ReadFrom(SmallLlama().F32("llama.rope.scale_linear", 2.0f)).config->rope.linear_factor,
            2.0f);
  GgufBuilder none = SmallLlama();
  none.String("llama.rope.scaling.type", "none").F32("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(ReadFrom(none).config->rope.linear_factor, 1.0f);
}

TEST(ModelConfigTest, ReadsLlama3RopeScalingFromItsTensor) {
  GgufBuilder builder = SmallLlama();
  builder.F32Tensor("rope_freqs.weight", {8}, {1, 1, 1, 1, 2, 4, 8, 8});
  const Read read = ReadFrom(builder);
  ASSERT_TRUE(read.config.ok()) << read.config.status();
  EXPECT_THAT(read.config->rope.frequency_factors, ElementsAre(1, 1, 1, 1, 2, 4, 8, 8));
  EXPECT_EQ(Refusal(SmallLlama().F32Tensor("rope_freqs.weight", {4}, {1, 1, 1, 1})),
            "INVALID_ARGUMENT: tensor \"rope_freqs.weight\" is F32 [1, 4]; it must be F32 [1, 8], "
            "one factor "
            "for each rotated pair");
  EXPECT_EQ(Refusal(SmallLlama().F32Tensor("rope_freqs.weight", {8}, {1, 1, 0, 1, 1, 1, 1, 1})),
            "INVALID_ARGUMENT: tensor \"rope_freqs.weight\" has factor 2 of 0; it must be finite "
            "and above 0");
}

TEST(ModelConfigTest, RefusesWhatIsNotServed) {
  EXPECT_EQ(Refusal(SmallLlama().String("general.architecture", "qwen2")),
            "UNIMPLEMENTED: general.architecture is \"qwen2\"; llama is served");
  EXPECT_EQ(Refusal(SmallLlama().String("llama.rope.scaling.type", "yarn")),
            "UNIMPLEMENTED: llama.rope.scaling.type is \"yarn\"; none, linear and Llama 3's (as "
            "rope_freqs.weight) are served");
  EXPECT_EQ(Refusal(SmallLlama().U32("llama.expert_count", 8)),
            "UNIMPLEMENTED: llama.expert_count is set: mixtures of experts are not served");
  EXPECT_EQ(Refusal(SmallLlama().U32("llama.attention.value_length", 8)),
            "UNIMPLEMENTED: llama.attention.value_length is 8 and the key length 16: only equal "
            "lengths are "
            "served");
  EXPECT_EQ(Refusal(SmallLlama().Tensor("blk.0.attn_q.bias", TensorType::kF32, {64})),
            "UNIMPLEMENTED: tensor \"blk.0.attn_q.bias\" has no part in the architecture llama as "
            "served here");
}

TEST(ModelConfigTest, RefusesANameThatCannotBeShown) {
  EXPECT_EQ(ReadFrom(SmallLlama().String("general.name", "päge")).config->name, "päge");
  EXPECT_EQ(ReadFrom(SmallLlama().Remove("general.name")).config->name, "llama");
  EXPECT_EQ(Refusal(SmallLlama().String("general.name", "a\xff")),
            "INVALID_ARGUMENT: general.name is not UTF-8 at its byte 1");
  EXPECT_EQ(Refusal(SmallLlama().String("general.name", std::string(257, 'n'))),
            "INVALID_ARGUMENT: general.name has 257 bytes; it must have 1 to 256");
  EXPECT_EQ(Refusal(SmallLlama().String("general.name", "")),
            "INVALID_ARGUMENT: general.name has 0 bytes; it must have 1 to 256");
}

TEST(ModelConfigTest, NamesTheKeyThatIsMissing) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.context_length",
                          "llama.embedding_length", "llama.feed_forward_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    GgufBuilder builder = SmallLlama();
    builder.Remove(key);
    EXPECT_EQ(Refusal(builder), std::string("NOT_FOUND: metadata key \"") + key + "\" is missing");
  }
}

TEST(ModelConfigTest, NamesTheTensorThatIsMissing) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_v.weight"}) {
    GgufBuilder builder = SmallLlama(2);
    builder.RemoveTensor(name);
    EXPECT_EQ(Refusal(builder), std::string("NOT_FOUND: tensor \"") + name + "\" is missing");
  }
}

TEST(ModelConfigTest, RefusesNumbersOutOfRange) {
  const auto u32 = [](const char* key, uint32_t value) {
    return Refusal(SmallLlama().U32(key, value));
  };
  EXPECT_EQ(u32("llama.block_count", 0),
            "INVALID_ARGUMENT: llama.block_count is 0; it must be 1 to 1024");
  EXPECT_EQ(u32("llama.block_count", 1025),
            "INVALID_ARGUMENT: llama.block_count is 1025; it must be 1 to 1024");
  EXPECT_EQ(u32("llama.embedding_length", 1 << 30),
            "INVALID_ARGUMENT: llama.embedding_length is 1073741824; it must be 1 to 131072");
  EXPECT_EQ(u32("llama.context_length", 0),
            "INVALID_ARGUMENT: llama.context_length is 0; it must be 1 to 16777216");
  EXPECT_EQ(u32("llama.attention.head_count", 0),
            "INVALID_ARGUMENT: llama.attention.head_count is 0; it must be 1 to 1024");
  EXPECT_EQ(u32("llama.attention.head_count_kv", 3),
            "INVALID_ARGUMENT: llama.attention.head_count is 4; it must be a multiple of "
            "llama.attention.head_count_kv, 3");
  EXPECT_EQ(u32("llama.attention.head_count", 6),
            "INVALID_ARGUMENT: llama.embedding_length is 64; without llama.attention.key_length it "
            "must be a "
            "multiple of the 6 query heads");
  EXPECT_EQ(u32("llama.attention.key_length", 15),
            "INVALID_ARGUMENT: the head dimension is 15; it must be even and 2 to 512");
  EXPECT_EQ(u32("llama.rope.dimension_count", 18),
            "INVALID_ARGUMENT: llama.rope.dimension_count is 18; it must be 1 to 16");
  EXPECT_EQ(u32("llama.rope.dimension_count", 7),
            "INVALID_ARGUMENT: llama.rope.dimension_count is 7; it must be even");
  EXPECT_EQ(u32("llama.vocab_size", 41),
            "INVALID_ARGUMENT: llama.vocab_size is 41; tensor \"token_embd.weight\" has 40 rows");
  EXPECT_EQ(Refusal(SmallLlama().F32("llama.attention.layer_norm_rms_epsilon", 0)),
            "INVALID_ARGUMENT: llama.attention.layer_norm_rms_epsilon is 0; it must be finite and "
            "above 0");
  EXPECT_EQ(
      Refusal(SmallLlama().F32("llama.rope.freq_base", std::numeric_limits<float>::infinity())),
      "INVALID_ARGUMENT: llama.rope.freq_base is inf; it must be finite and above 0");
}

TEST(ModelConfigTest, RefusesTensorsOfTheWrongShapeOrType) {
  GgufBuilder shape = SmallLlama();
  shape.RemoveTensor("blk.0.ffn_down.weight")
      .Tensor("blk.0.ffn_down.weight", TensorType::kQ8_0, {64, 96});
  EXPECT_EQ(Refusal(shape),
            "INVALID_ARGUMENT: tensor \"blk.0.ffn_down.weight\" has 96 rows of 64; it must have 64 "
            "rows of 96");
  GgufBuilder type = SmallLlama();
  type.RemoveTensor("blk.0.ffn_norm.weight")
      .Tensor("blk.0.ffn_norm.weight", TensorType::kF16, {64});
  EXPECT_EQ(Refusal(type),
            "INVALID_ARGUMENT: tensor \"blk.0.ffn_norm.weight\" is F16; a norm must be F32");
}

// The file that is served by default; `tools/dev model` fetches it.
TEST(ModelConfigTest, ReadsSmolLm2) {
  const char* path = std::getenv("OCTAVO_MODEL");
  const char* home = std::getenv("HOME");
  const auto file =
      GgufFile::Open(path != nullptr ? path
                                     : std::string(home != nullptr ? home : "") +
                                           "/.cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), 272u);
  EXPECT_EQ((*file)->data_offset(), 1'785'664u);
  EXPECT_EQ((*file)->GetStrings("tokenizer.ggml.merges")->size(), 48'900u);
  const auto config = ReadModelConfig(**file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layer_count, 30u);
  EXPECT_EQ(config->width, 576u);
  EXPECT_EQ(config->ffn_width, 1536u);
  EXPECT_EQ(config->query_head_count, 9u);
  EXPECT_EQ(config->kv_head_count, 3u);
  EXPECT_EQ(config->head_dim, 64u);
  EXPECT_EQ(config->context_length, 8192u);
  EXPECT_EQ(config->vocab_size, 49'152u);
  EXPECT_EQ(config->rms_epsilon, 1e-5f);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->rope.frequency_base, 100'000.0f);
  EXPECT_EQ(config->rope.dimension_count, 64u);
}

}  // namespace
}  // namespace octavo
