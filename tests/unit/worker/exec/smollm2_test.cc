// The real model, in process: accuracy against the float32 reference's goldens, and same bytes
// whatever the schedule, the threads and the instruction set.

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/golden/golden_reader.h"
#include "tests/unit/worker/exec/accuracy.h"
#include "tests/unit/worker/exec/driver.h"

namespace octavo {
namespace {

std::string ModelPath() {
  if (const char* path = std::getenv("OCTAVO_MODEL")) return path;
  return std::string(std::getenv("HOME")) + "/.cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

GoldenFile Golden(const std::string& name) {
  return GoldenFile(std::string(OCTAVO_SOURCE_DIR) + "/tests/golden/smollm2/" + name + ".golden");
}

// Loaded once for all tests that do not ask for other threads or instructions.
const LoadedModel& Shared() {
  static const LoadedModel* const kModel =
      new LoadedModel(LoadedModel::Load(ModelPath(), 2, kernels::DetectIsa()));
  return *kModel;
}

// Scores the golden's tokens and compares with what the reference made of them.
void Compare(const std::string& name, Executor& executor, Accuracy& accuracy) {
  const GoldenFile golden = Golden(name);
  Request request{.prompt = golden.I32("tokens"), .scores = true};
  request.sampling.logprobs = kMaxTopLogprobs;
  const Answer answer = Driver(executor).Run({request}, {})[0];
  const std::vector<int32_t> top_tokens = golden.I32("top_tokens");
  const std::vector<float> top_logprobs = golden.F32("top_logprobs");
  const std::vector<float> next_logprobs = golden.F32("next_logprobs");
  const size_t top = golden.Shape("top_tokens")[1];
  ASSERT_EQ(answer.scored.size(), request.prompt.size() - 1) << name;
  for (size_t p = 0; p < answer.scored.size(); ++p) {
    std::vector<TokenLogprob> reference;
    for (size_t i = 0; i < top; ++i)
      reference.push_back({top_tokens[p * top + i], top_logprobs[p * top + i]});
    accuracy.Add(answer.scored_top[p], reference);
    accuracy.AddNext(answer.scored[p], next_logprobs[p]);
  }
}

void ExpectAccurate(const Accuracy& accuracy) {
  std::cout << accuracy << std::endl;
  EXPECT_LE(accuracy.Quantile(.5), 0.002);
  EXPECT_LE(accuracy.Quantile(.99), 0.03);
  EXPECT_GE(accuracy.same_top_share(), 0.995);
  EXPECT_LE(accuracy.largest_lost_margin(), 0.05);
  EXPECT_NEAR(accuracy.perplexity() / accuracy.reference_perplexity(), 1, 0.001);
}

TEST(SmolLm2Test, PromptsAndTheirContinuationsAgreeWithTheReference) {
  std::unique_ptr<Executor> executor = Shared().MakeExecutor({.num_blocks = 64});
  Accuracy accuracy;
  for (const char* name : {"capital", "code", "french", "list", "mixed", "paging", "prose",
                           "python", "story", "sums"}) {
    Compare(name, *executor, accuracy);
  }
  EXPECT_GE(accuracy.positions(), 8u * 64);
  ExpectAccurate(accuracy);
}

TEST(SmolLm2Test, ALongTextAgreesWithTheReference) {
  std::unique_ptr<Executor> executor = Shared().MakeExecutor({.num_blocks = 300});
  Accuracy accuracy;
  Compare("text", *executor, accuracy);
  EXPECT_GE(accuracy.positions() + 1, 4000u);
  ExpectAccurate(accuracy);
}

TEST(SmolLm2Test, TheCapitalOfFranceIsAnsweredAsTheReferenceDoes) {
  const GoldenFile golden = Golden("capital");
  std::vector<TokenId> prompt = golden.I32("tokens");
  prompt.resize(static_cast<size_t>(golden.I32("prompt_length")[0]));
  ASSERT_EQ(prompt.size(), 37u);
  std::unique_ptr<Executor> executor = Shared().MakeExecutor({.num_blocks = 64});
  Request request{.prompt = prompt, .max_tokens = 8};
  request.sampling.temperature = 0;
  EXPECT_EQ(Driver(*executor).Run({request}, {})[0].tokens,
            (std::vector<TokenId>{504, 3575, 282, 4649, 314, 7042, 30, 2}));
}

// --- Same bytes. ---

// A request that uses most of what there is: scores its prompt, samples under penalties, reports
// alternatives.
Request MakeRequest(const std::string& golden, size_t prompt_tokens, uint32_t max_tokens) {
  Request request{.prompt = Golden(golden).I32("tokens"),
                  .max_tokens = max_tokens,
                  .seed = 1234567,
                  .scores = true};
  request.prompt.resize(prompt_tokens);
  request.sampling.temperature = 0.9f;
  request.sampling.top_k = 50;
  request.sampling.top_p = 0.95f;
  request.sampling.repetition_penalty = 1.1f;
  request.sampling.frequency_penalty = 0.2f;
  request.sampling.logprobs = 3;
  return request;
}

// 31 others of many lengths, greedy and sampled.
std::vector<Request> Others() {
  std::vector<Request> others;
  for (const char* name : {"code", "french", "list", "sums"}) {
    const std::vector<TokenId> tokens = Golden(name).I32("tokens");
    for (uint32_t i = 0; i < 8 && others.size() < 31; ++i) {
      Request other{
          .prompt = {tokens.begin(), tokens.begin() + 3 + 5 * i}, .max_tokens = 4 + i, .seed = i};
      other.sampling.temperature = i % 2 == 0 ? 0.f : 1.f;
      others.push_back(other);
    }
  }
  return others;
}

Answer Serve(const LoadedModel& loaded, const Request& request, const Schedule& schedule,
             uint32_t block_size = 16, const std::vector<Request>& others = {},
             KvType kv_type = KvType::kF16) {
  const uint32_t blocks = (4096 + block_size - 1) / block_size + 40;
  std::unique_ptr<Executor> executor =
      loaded.MakeExecutor({.block_size = block_size, .kv_type = kv_type, .num_blocks = blocks});
  std::vector<Request> requests = {request};
  requests.insert(requests.end(), others.begin(), others.end());
  return Driver(*executor).Run(requests, schedule)[0];
}

class SmolLm2BytesTest : public testing::Test {
 protected:
  static const Request& LongRequest() {
    static const Request* const kRequest = new Request(MakeRequest("story", 88, 12));
    return *kRequest;
  }
  static const Answer& Alone() {
    static const Answer* const kAnswer = new Answer(Serve(Shared(), LongRequest(), {}));
    return *kAnswer;
  }
};

TEST_F(SmolLm2BytesTest, AloneOrBesideThirtyOneOthers) {
  ASSERT_EQ(Alone().tokens.size(), 12u);
  ASSERT_EQ(Alone().scored.size(), 87u);
  EXPECT_EQ(Others().size(), 31u);
  EXPECT_EQ(Serve(Shared(), LongRequest(), {}, 16, Others()), Alone());
  EXPECT_EQ(
      Serve(Shared(), LongRequest(), {.chunk = 13, .token_budget = 60, .stagger = 1}, 16, Others()),
      Alone());
}

TEST_F(SmolLm2BytesTest, WhateverThePrefillChunk) {
  for (uint32_t chunk : {1u, 7u, 16u, 64u, 512u}) {
    EXPECT_EQ(Serve(Shared(), LongRequest(), {.chunk = chunk}), Alone()) << "chunk " << chunk;
  }
}

TEST_F(SmolLm2BytesTest, WhateverTheBlockSizeAndWhereverTheBlocksLie) {
  for (uint32_t block_size : {1u, 3u, 48u, 256u}) {
    EXPECT_EQ(Serve(Shared(), LongRequest(), {.shuffle_seed = block_size}, block_size), Alone())
        << "block size " << block_size;
  }
  EXPECT_EQ(Serve(Shared(), LongRequest(), {.shuffle_seed = 99}), Alone());
}

TEST_F(SmolLm2BytesTest, PreemptedAndComputedAgainOrWithTwoStepsInFlight) {
  EXPECT_EQ(Serve(Shared(), LongRequest(), {.chunk = 40, .preempt_every = 4}), Alone());
  EXPECT_EQ(Serve(Shared(), LongRequest(), {.pipelined = true}), Alone());
  EXPECT_EQ(
      Serve(Shared(), LongRequest(),
            {.chunk = 20, .preempt_every = 7, .shuffle_seed = 5, .pipelined = true}, 16, Others()),
      Alone());
}

TEST_F(SmolLm2BytesTest, WhateverTheThreadsAndTheInstructionSet) {
  const Request request = MakeRequest("capital", 30, 3);
  const Answer expected = Serve(Shared(), request, {});
  ASSERT_EQ(expected.tokens.size(), 3u);
  for (uint32_t threads : {1u, 3u}) {
    EXPECT_EQ(Serve(LoadedModel::Load(ModelPath(), threads, kernels::DetectIsa()), request, {}),
              expected)
        << threads << " threads";
  }
  for (kernels::Isa isa : kernels::SupportedIsas()) {
    EXPECT_EQ(Serve(LoadedModel::Load(ModelPath(), 2, isa), request, {}), expected)
        << kernels::IsaName(isa);
  }
}

TEST_F(SmolLm2BytesTest, ABf16CacheKeepsItsOwnBytes) {
  const Request request = MakeRequest("capital", 37, 6);
  const Answer expected = Serve(Shared(), request, {}, 16, {}, KvType::kBF16);
  EXPECT_NE(expected, Serve(Shared(), request, {}));
  EXPECT_EQ(Serve(Shared(), request, {.chunk = 5, .shuffle_seed = 3}, 3, Others(), KvType::kBF16),
            expected);
}

}  // namespace
}  // namespace octavo
