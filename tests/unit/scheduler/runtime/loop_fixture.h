#pragma once

// A loop with the real engine, a scripted worker that answers when it is told to, and a manual
// clock.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/runtime/loop.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {

class LoopFixture : public testing::Test {
 protected:
  LoopFixture() { Make({}); }

  static LoopOptions Options() {
    LoopOptions options;
    options.engine.context_length = 64;
    options.engine.max_step_tokens = 32;
    options.engine.max_sequences = 4;
    options.engine.max_waiting_requests = 2;
    options.fleet.model_fingerprint = 42;
    options.fleet.layout = SmallLayout();
    options.replica_grace = absl::Seconds(30);
    options.slow_reader_timeout = absl::Seconds(20);
    return options;
  }
  void Make(const std::function<void(LoopOptions&)>& change) {
    LoopOptions options = Options();
    if (change) change(options);
    loop_ = std::make_unique<Loop>(options, tokenizer_.get(), &clock_, &dialer_, &observer_);
  }

  bool Turn() { return loop_->Turn(absl::InfinitePast()); }
  void Register(const std::string& instance = "a") {
    ASSERT_TRUE(loop_
                    ->Call([this, instance] {
                      EXPECT_TRUE(loop_->RegisterWorker(SmallWorker(instance)).ok());
                    })
                    .ok());
    Turn();
  }
  void StartReplica() {
    Register();
    loop_->OnModelLoaded(dialer_.last().id, SmallLoadedModel());
    Turn();
    loop_->OnReplicaStarted(dialer_.last().id, absl::OkStatus());
    Turn();
    ASSERT_TRUE(observer_.ready);
  }

  RequestId Submit(const std::string& name, const std::string& prompt, uint32_t max_tokens,
                   SessionOptions session = {}) {
    Submission submission;
    submission.request.request_id = loop_->NewRequestId();
    submission.request.client_request_id = name;
    for (const char byte : prompt)
      submission.request.prompt.push_back(static_cast<unsigned char>(byte));
    submission.request.max_tokens = max_tokens;
    submission.request.deadline = deadline_;
    submission.request.sample_count = session.sequence_count;
    session.prompt_token_count = static_cast<uint32_t>(prompt.size());
    submission.session = std::move(session);
    submission.sink = sinks_.emplace_back(std::make_shared<FakeSink>());
    const RequestId id = submission.request.request_id;
    EXPECT_TRUE(loop_->Submit(std::move(submission)).ok());
    Turn();
    return id;
  }

  // Answers the oldest plan: every sampling row gets the next byte of `text`.
  void Answer(const std::string& text = "x") {
    FakeDialer::Link& link = dialer_.last();
    ASSERT_FALSE(link.unanswered.empty());
    const StepPlan plan = std::move(link.unanswered.front());
    link.unanswered.pop_front();
    StepResult result;
    result.replica_id = plan.replica_id;
    result.epoch = plan.epoch;
    result.step = plan.step;
    for (const LayerGroupChange& change : plan.layer_groups)
      result.digests.push_back(change.digest);
    size_t next = 0;
    for (const PlanRow& row : plan.rows) {
      if (!row.samples) continue;
      result.sampled.push_back(
          {.sequence_id = row.sequence_id,
           .position = row.first_position + row.token_count,
           .token_id = static_cast<unsigned char>(text[next++ % text.size()])});
    }
    loop_->OnResult(link.id, std::move(result));
    Turn();
  }
  void AnswerAll(const std::string& text) {
    for (const char byte : text) {
      if (dialer_.last().unanswered.empty()) return;
      Answer(std::string(1, byte));
    }
  }
  FakeSink& sink(size_t index = 0) { return *sinks_[index]; }

  const std::unique_ptr<Tokenizer> tokenizer_ = ByteTokenizer();
  ManualClock clock_;
  FakeDialer dialer_;
  FakeObserver observer_;
  std::vector<std::shared_ptr<FakeSink>> sinks_;
  absl::Time deadline_ = absl::InfiniteFuture();
  std::unique_ptr<Loop> loop_;
};

}  // namespace octavo
