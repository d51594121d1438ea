// The scheduler's engine over the real executor and the real model, in one thread: what shares KV
// must give the bytes of what computes its own.

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sample_seed.h"
#include "gtest/gtest.h"
#include "scheduler/core/engine.h"
#include "tests/unit/worker/exec/loaded_model.h"

namespace octavo {
namespace {

constexpr uint32_t kBlockSize = 16;

const LoadedModel& Shared() {
  static const LoadedModel* const kModel = [] {
    const char* path = std::getenv("OCTAVO_MODEL");
    return new LoadedModel(LoadedModel::Load(
        path != nullptr ? path
                        : std::string(std::getenv("HOME")) +
                              "/.cache/octavo/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        2, kernels::DetectIsa()));
  }();
  return *kModel;
}

// A token with its log-probability and alternatives.
struct Outcome {
  TokenId token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};
using Stream = std::vector<Outcome>;

struct Answers {
  std::map<std::pair<RequestId, uint32_t>, Stream> streams;  // by request and sample
  uint64_t preemptions = 0;
  uint64_t computed_tokens = 0;
  uint64_t copies = 0;
};

class Server {
 public:
  Server(uint32_t num_blocks, bool prefix_cache, uint32_t block_size = kBlockSize)
      : executor_(Shared().MakeExecutor(
            {.epoch = Epoch(1), .block_size = block_size, .num_blocks = num_blocks})),
        engine_(EngineOptions{.context_length = 512,
                              .max_step_tokens = 512,
                              .max_sequences = 64,
                              .prefix_cache = prefix_cache}) {
    Handle(ReplicaReady{ReplicaId(0), Epoch(1), {{executor_->layout(), executor_->num_blocks()}}});
  }

  Answers Run(std::vector<SubmitRequest> requests) {
    for (SubmitRequest& request : requests) Handle(std::move(request));
    std::deque<StepPlan> in_flight;
    while (!engine_.idle()) {
      while (engine_.PlanNext(now_, actions_)) {
      }
      for (Action& action : std::exchange(actions_, {})) {
        if (auto* plan = std::get_if<SendPlan>(&action)) in_flight.push_back(std::move(plan->plan));
      }
      CHECK(!in_flight.empty()) << "nothing moves";
      answers_.copies += in_flight.front().layer_groups[0].entry_changes.size();
      absl::StatusOr<StepResult> result = executor_->Execute(in_flight.front());
      CHECK(result.ok()) << result.status();
      in_flight.pop_front();
      Handle(StepCompleted{*std::move(result)});
    }
    answers_.preemptions = engine_.Counters().preemptions;
    answers_.computed_tokens = engine_.Counters().computed_tokens;
    return std::exchange(answers_, {});
  }

 private:
  void Handle(Event event) {
    engine_.Handle(std::move(event), now_, actions_);
    for (Action& action : actions_) {
      if (const auto* refused = std::get_if<RequestRefused>(&action)) {
        ADD_FAILURE() << refused->status;
      }
      if (const auto* finished = std::get_if<RequestFinished>(&action)) {
        EXPECT_TRUE(finished->status.ok()) << finished->status;
      }
      const auto* generated = std::get_if<TokensGenerated>(&action);
      if (generated == nullptr) continue;
      for (const GeneratedToken& token : generated->tokens) {
        const auto first = generated->top.begin() + token.first_top;
        answers_.streams[{token.request_id, token.sequence_index}].push_back(
            {token.outcome.token_id,
             token.outcome.logprob,
             {first, first + token.outcome.top_count}});
      }
    }
    std::erase_if(actions_,
                  [](const Action& action) { return !std::holds_alternative<SendPlan>(action); });
  }

  std::unique_ptr<Executor> executor_;
  Engine engine_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Action> actions_;
  Answers answers_;
};

SubmitRequest Prompt(uint32_t length, uint64_t seed) {
  SubmitRequest request{.request_id = RequestId(1), .seed = seed, .max_tokens = 9};
  for (uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1000 + 37 * i % 20000));
  }
  request.sampling.logprobs = 3;
  request.sampling.presence_penalty = 0.4f;
  return request;
}

// Sample i of a request, as a request of its own.
Stream Alone(SubmitRequest request, uint32_t index) {
  request.seed = SampleSeed(request.seed, index);
  request.sample_count = 1;
  const RequestId id = request.request_id;
  return Server(64, /*prefix_cache=*/false).Run({std::move(request)}).streams.at({id, 0});
}

TEST(RealWorkerTest, EachSampleIsWhatItsSeedAloneGives) {
  for (const uint32_t length : {3 * kBlockSize - 1, 3 * kBlockSize, 3 * kBlockSize + 1}) {
    SubmitRequest request = Prompt(length, 7 + length);
    std::vector<Stream> alone;
    for (uint32_t i = 0; i < 8; ++i) alone.push_back(Alone(request, i));
    EXPECT_NE(alone[0], alone[1]);
    for (const uint32_t n : {1, 2, 4, 8}) {
      request.sample_count = n;
      const Answers answers = Server(64, /*prefix_cache=*/true).Run({request});
      ASSERT_EQ(answers.streams.size(), n);
      for (uint32_t i = 0; i < n; ++i) {
        EXPECT_TRUE(answers.streams.at({RequestId(1), i}) == alone[i])
            << "sample " << i << " of " << n << " of a prompt of " << length;
      }
      EXPECT_EQ(answers.preemptions, 0u);
      EXPECT_EQ(answers.copies, length % kBlockSize == 0 ? 0 : n - 1);
      EXPECT_EQ(answers.computed_tokens, length + n * (*request.max_tokens - 1));
    }
  }
}

// Samples that compute their prompt, and samples of a longer one that finds it, copies part of a
// block and goes on.
TEST(RealWorkerTest, BlockSizesGiveTheSameBytes) {
  constexpr uint32_t kSamples = 4;
  SubmitRequest first = Prompt(70, 3);
  first.sample_count = kSamples;
  SubmitRequest second = Prompt(75, 4);
  second.request_id = RequestId(2);
  second.sample_count = kSamples;
  std::map<std::pair<RequestId, uint32_t>, Stream> alone;
  for (uint32_t i = 0; i < kSamples; ++i) {
    alone[{RequestId(1), i}] = Alone(first, i);
    alone[{RequestId(2), i}] = Alone(second, i);
  }
  for (const uint32_t block_size : {1, 8, 16, 32, 64, 256}) {
    Server server(16 + 512 / block_size, /*prefix_cache=*/true, block_size);
    const Answers cold = server.Run({first});
    const Answers warm = server.Run({second});
    EXPECT_EQ(warm.computed_tokens - cold.computed_tokens, 5 + kSamples * 8) << block_size;
    for (uint32_t i = 0; i < kSamples; ++i) {
      EXPECT_TRUE(cold.streams.at({RequestId(1), i}) == alone.at({RequestId(1), i}))
          << "sample " << i << ", block size " << block_size;
      EXPECT_TRUE(warm.streams.at({RequestId(2), i}) == alone.at({RequestId(2), i}))
          << "sample " << i << " of the second, block size " << block_size;
    }
  }
}

// A pool that has no room for all of them: some are preempted, and computed again.
TEST(RealWorkerTest, SamplesAreTheSameInATightPool) {
  SubmitRequest request = Prompt(2 * kBlockSize - 3, 5);
  request.max_tokens.reset();
  request.sampling.stop_token_ids = {};
  std::vector<Stream> alone;
  request.max_tokens = 24;
  for (uint32_t i = 0; i < 4; ++i) alone.push_back(Alone(request, i));
  request.sample_count = 4;
  // 1 shared block of the prompt, and at the end 3 of each. A competitor takes the rest.
  SubmitRequest other = Prompt(kBlockSize + 5, 99);
  other.request_id = RequestId(2);
  other.max_tokens = 60;
  other.prompt[0] = 77;
  const Answers answers = Server(13, /*prefix_cache=*/true).Run({other, request});
  EXPECT_GT(answers.preemptions, 0u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(answers.streams.at({RequestId(1), i}) == alone[i]) << "sample " << i;
  }
}

}  // namespace
}  // namespace octavo
