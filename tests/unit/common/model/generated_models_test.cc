// Reads the models that tools/reference/make_model.py wrote into the build folder: files of the
// gguf package's own writer, in every tensor type and with every RoPE scaling.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "common/model/model_tensors.h"
#include "tests/golden/golden_reader.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;

constexpr char kFolder[] = OCTAVO_BUILD_DIR "/models/";

struct Model {
  std::unique_ptr<GgufFile> file;
  ModelConfig config;
  ModelTensors tensors;
};

Model Load(const std::string& name) {
  Model model;
  auto file = GgufFile::Open(kFolder + name + ".gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return model;
  model.file = *std::move(file);
  const auto config = ReadModelConfig(*model.file);
  EXPECT_TRUE(config.ok()) << name << ": " << config.status();
  if (!config.ok()) return model;
  model.config = *config;
  const auto tensors = FindModelTensors(*model.file, *config);
  EXPECT_TRUE(tensors.ok()) << name << ": " << tensors.status();
  if (tensors.ok()) model.tensors = *tensors;
  return model;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  return names;
}

TEST(GeneratedModelsTest, TogetherCoverEveryTypeAndShape) {
  std::set<TensorType> types;
  std::set<uint32_t> groups, head_dims;
  std::set<bool> tied;
  for (const std::string& name : Names()) {
    const Model model = Load(name);
    ASSERT_FALSE(model.tensors.layers.empty());
    types.insert(model.tensors.layers[0].query->type);
    groups.insert(model.config.query_heads_per_kv_head());
    head_dims.insert(model.config.head_dim);
    tied.insert(model.config.tied_embeddings);
  }
  EXPECT_EQ(types.size(), 11u);
  EXPECT_THAT(groups, ElementsAre(1, 4, 8));
  EXPECT_THAT(head_dims, ElementsAre(64, 128));
  EXPECT_THAT(tied, ElementsAre(false, true));
}

TEST(GeneratedModelsTest, CarryTheRopeScalingsThatTheyAreMadeWith) {
  const ModelConfig plain = Load("f32").config;
  EXPECT_EQ(plain.rope.linear_factor, 1.0f);
  EXPECT_TRUE(plain.rope.frequency_factors.empty());
  EXPECT_EQ(Load("f16").config.rope.linear_factor, 4.0f);
  const ModelConfig llama3 = Load("bf16").config;
  EXPECT_EQ(llama3.rope.linear_factor, 1.0f);
  EXPECT_EQ(llama3.rope.frequency_base, 500'000.0f);
  ASSERT_EQ(llama3.rope.frequency_factors.size(), 32u);
  EXPECT_EQ(llama3.rope.frequency_factors.front(), 1.0f);
  EXPECT_EQ(llama3.rope.frequency_factors.back(), 8.0f);
  EXPECT_EQ(Load("part_rope").config.rope.dimension_count, 32u);
}

TEST(GeneratedModelsTest, CarryGoldensOfTheirOwnShape) {
  for (const std::string& name : Names()) {
    const Model model = Load(name);
    const GoldenFile golden(kFolder + name + ".golden");
    const size_t tokens = golden.Shape("tokens")[0];
    EXPECT_GT(tokens, 256u);
    EXPECT_THAT(golden.Shape("logits"), ElementsAre(tokens, model.config.vocab_size));
    EXPECT_EQ(model.file->GetStrings("tokenizer.ggml.tokens")->size(), model.config.vocab_size);
  }
}

}  // namespace
}  // namespace octavo
