// Generated models in every tensor type and shape, against the float32 reference and against
// themselves. tools/reference/make_model.py writes them before this runs.

#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/golden/golden_reader.h"
#include "tests/unit/worker/exec/accuracy.h"
#include "tests/unit/worker/exec/driver.h"

namespace octavo {
namespace {

std::string PathOf(const std::string& name) {
  return std::string(OCTAVO_BUILD_DIR) + "/models/" + name;
}

class GeneratedModelTest : public testing::TestWithParam<const char*> {
 protected:
  GeneratedModelTest() : golden_(PathOf(std::string(GetParam()) + ".golden")) {}

  LoadedModel Load(uint32_t threads = 2, kernels::Isa isa = kernels::DetectIsa()) const {
    return LoadedModel::Load(PathOf(std::string(GetParam()) + ".gguf"), threads, isa);
  }

  // The first `prompt_tokens` of the golden's sequence, scored and continued.
  Request MakeRequest(size_t prompt_tokens, uint32_t max_tokens) const {
    Request request{
        .prompt = golden_.I32("tokens"), .max_tokens = max_tokens, .seed = 77, .scores = true};
    request.prompt.resize(prompt_tokens);
    request.sampling.temperature = 0.8f;
    request.sampling.presence_penalty = 0.3f;
    request.sampling.logprobs = 5;
    return request;
  }

  // log-softmax of the golden's logits at `position`, by token.
  std::vector<double> ReferenceLogprobs(const std::vector<float>& logits, size_t position,
                                        size_t vocab_size) const {
    const float* row = logits.data() + position * vocab_size;
    const double max = *std::max_element(row, row + vocab_size);
    double sum = 0;
    for (size_t t = 0; t < vocab_size; ++t) sum += std::exp(row[t] - max);
    std::vector<double> logprobs(vocab_size);
    for (size_t t = 0; t < vocab_size; ++t) logprobs[t] = row[t] - max - std::log(sum);
    return logprobs;
  }

  GoldenFile golden_;
};

Answer Serve(const LoadedModel& loaded, const Request& request, const Schedule& schedule,
             uint32_t block_size = 16, const std::vector<Request>& others = {}) {
  std::unique_ptr<Executor> executor =
      loaded.MakeExecutor({.block_size = block_size, .num_blocks = 2048 / block_size + 40});
  std::vector<Request> requests = {request};
  requests.insert(requests.end(), others.begin(), others.end());
  return Driver(*executor).Run(requests, schedule)[0];
}

// The reference's five likeliest tokens of every position, and the token that follows. What differs
// is rounding: keys and values to f16 (units of 2^-11), activations to int16 (2^-16) or, before
// bf16 weights, to bf16 (2^-9). Random weights with logits of deviation 3 amplify it more than a
// trained model does; a wrong element anywhere is off by tenths at least.
TEST_P(GeneratedModelTest, LogProbabilitiesAgreeWithTheReference) {
  const LoadedModel loaded = Load();
  Request request{.prompt = golden_.I32("tokens"), .scores = true};
  request.sampling.logprobs = kMaxTopLogprobs;
  const Answer answer = Serve(loaded, request, {});
  const std::vector<float> logits = golden_.F32("logits");
  const size_t vocab_size = golden_.Shape("logits")[1];
  Accuracy accuracy;
  for (size_t p = 0; p < answer.scored.size(); ++p) {
    const std::vector<double> reference = ReferenceLogprobs(logits, p, vocab_size);
    std::vector<TokenLogprob> likeliest;
    for (size_t t = 0; t < vocab_size; ++t)
      likeliest.push_back({static_cast<TokenId>(t), static_cast<float>(reference[t])});
    std::partial_sort(
        likeliest.begin(), likeliest.begin() + 5, likeliest.end(),
        [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob; });
    likeliest.resize(5);
    accuracy.Add(answer.scored_top[p], likeliest);
    accuracy.AddNext(answer.scored[p],
                     static_cast<float>(reference[static_cast<size_t>(request.prompt[p + 1])]));
  }
  std::cout << GetParam() << ": " << accuracy << std::endl;
  const bool rounds_to_bf16 = std::string(GetParam()) == "bf16";
  EXPECT_LE(accuracy.Quantile(.5), rounds_to_bf16 ? 0.03 : 0.005);
  EXPECT_LE(accuracy.Max(), rounds_to_bf16 ? 0.25 : 0.03);
  EXPECT_LE(accuracy.largest_lost_margin(), rounds_to_bf16 ? 0.15 : 0.02);
  EXPECT_NEAR(accuracy.perplexity() / accuracy.reference_perplexity(), 1, 0.001);
}

TEST_P(GeneratedModelTest, GreedyContinuationIsTheReferences) {
  Request request{.prompt = golden_.I32("tokens"), .max_tokens = 16};
  request.sampling.temperature = 0;
  EXPECT_EQ(Serve(Load(), request, {}).tokens, golden_.I32("greedy"));
}

TEST_P(GeneratedModelTest, SameBytesWhateverTheScheduleAndTheMachine) {
  const Request request = MakeRequest(280, 8);
  const LoadedModel loaded = Load();
  const Answer alone = Serve(loaded, request, {});
  ASSERT_EQ(alone.tokens.size(), 8u);
  ASSERT_EQ(alone.scored.size(), 279u);
  std::vector<Request> others;
  for (uint32_t i = 0; i < 31; ++i) others.push_back(MakeRequest(1 + 3 * i, 1 + i % 9));
  EXPECT_EQ(Serve(loaded, request, {}, 16, others), alone);
  EXPECT_EQ(
      Serve(loaded, request,
            {.chunk = 33, .token_budget = 100, .stagger = 1, .shuffle_seed = 8, .pipelined = true},
            16, others),
      alone);
  for (uint32_t chunk : {1u, 7u, 16u, 64u})
    EXPECT_EQ(Serve(loaded, request, {.chunk = chunk}), alone) << "chunk " << chunk;
  for (uint32_t block_size : {1u, 3u, 48u, 256u}) {
    EXPECT_EQ(Serve(loaded, request, {.shuffle_seed = 4}, block_size), alone)
        << "block size " << block_size;
  }
  EXPECT_EQ(Serve(loaded, request, {.chunk = 100, .preempt_every = 3}), alone);
  EXPECT_EQ(Serve(Load(1), request, {}), alone) << "1 thread";
  EXPECT_EQ(Serve(Load(2, kernels::Isa::kScalar), request, {.chunk = 128}), alone) << "scalar";
}

INSTANTIATE_TEST_SUITE_P(All, GeneratedModelTest,
                         testing::Values("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0",
                                         "q5_1", "q4_k", "q5_k", "q6_k", "q4_1_q8_0", "q4_k_q6_k",
                                         "q8_0_f16", "part_rope"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace octavo
