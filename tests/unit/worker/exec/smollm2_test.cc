// The real model, in process: the prompt of the model card's check, accuracy against the float32
// reference's goldens, and same bytes.

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/worker/exec/driver.h"

namespace octavo {
namespace {

std::string ModelPath() {
  if (const char* path = std::getenv("OCTAVO_MODEL")) return path;
  return std::string(std::getenv("HOME")) + "/.cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// "What is the capital of France?" through the chat template.
const std::vector<TokenId> kCapital = {
    1,   9690, 198, 2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,  34519,
    28,  7018, 411, 407,  19712, 8182, 2,    198,  1,     4093, 198,  1780, 314,
    260, 3575, 282, 4649, 47,    2,    198,  1,    520,   9531, 198};

TEST(SmolLm2Test, TheCapitalOfFranceIsAnsweredAsTheReferenceDoes) {
  LoadedModel loaded = LoadedModel::Load(ModelPath(), 2, kernels::DetectIsa());
  std::unique_ptr<Executor> executor = loaded.MakeExecutor({.num_blocks = 64});
  Request request{.prompt = kCapital, .max_tokens = 8};
  request.sampling.temperature = 0;
  const std::vector<Answer> answers = Driver(*executor).Run({request}, {});
  EXPECT_EQ(answers[0].tokens, (std::vector<TokenId>{504, 3575, 282, 4649, 314, 7042, 30, 2}));
}

}  // namespace
}  // namespace octavo
