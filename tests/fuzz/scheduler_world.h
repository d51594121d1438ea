#pragma once

// A scheduler in one thread, for fuzzers: the real loop, engine and fleet on a clock that stands
// still, and workers that say what they are told to. Services are called through their handlers,
// without a socket.
//
// Thread rule: one thread; a turn of the loop runs inside Turn. CHECKs the engine's invariants
// after each turn.

#include <memory>
#include <string>
#include <utility>

#include "common/clock.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/test/default_reactor_test_peer.h"
#include "scheduler/rpc/token_stream.h"
#include "scheduler/runtime/loop.h"
#include "tests/fuzz/served_model.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {

class SchedulerWorld {
 public:
  explicit SchedulerWorld(const ServedModel* model, const LoopOptions& options)
      : loop(options, model->tokenizer.get(), &clock, &dialer, &observer) {}

  static LoopOptions Options() {
    LoopOptions options;
    options.engine.context_length = kContextLength;
    options.engine.max_step_tokens = 64;
    options.engine.max_sequences = 8;
    options.fleet.model_fingerprint = 42;
    options.fleet.layout = SmallLayout();
    return options;
  }

  void Turn() {
    CHECK(loop.Call([] {}).ok());  // so that there is something to take, and nothing to wait for
    CHECK(loop.Turn(absl::InfinitePast()));
    const absl::Status proved = loop.engine().CheckInvariants();
    CHECK(proved.ok()) << proved;
  }

  // A worker as it should be, up to a running replica.
  void StartReplica(uint32_t block_count) {
    CHECK(loop.RegisterWorker(SmallWorker("a")).ok());
    loop.OnModelLoaded(dialer.last().id, SmallLoadedModel(block_count));
    Turn();
    loop.OnReplicaStarted(dialer.last().id, absl::OkStatus());
    Turn();
    CHECK(loop.fleet().ready());
  }

  // A request of `prompt_tokens` tokens; its end of the stream. Requests of different names share
  // no blocks.
  std::shared_ptr<FakeSink> Submit(const std::string& name, uint32_t prompt_tokens,
                                   std::optional<uint32_t> max_tokens = std::nullopt) {
    Submission submission;
    submission.request.request_id = loop.NewRequestId();
    submission.request.client_request_id = submission.request.cache_salt = name;
    submission.request.prompt.assign(prompt_tokens, 'a');
    submission.request.max_tokens = submission.session.max_tokens = max_tokens;
    submission.session.prompt_token_count = prompt_tokens;
    const auto sink = std::make_shared<FakeSink>();
    submission.sink = sink;
    CHECK(loop.Submit(std::move(submission)).ok());
    return sink;
  }

  // What a sound worker answers to the plan: an 'x' for each row that samples.
  static StepResult HonestResult(const StepPlan& plan) {
    StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
    for (const LayerGroupChange& change : plan.layer_groups)
      result.digests.push_back(change.digest);
    for (const PlanRow& row : plan.rows) {
      if (!row.samples) continue;
      result.sampled.push_back({.sequence_id = row.sequence_id,
                                .position = row.first_position + row.token_count,
                                .token_id = 'x'});
    }
    return result;
  }
  void AnswerHonestly() {
    const StepPlan plan = dialer.last().unanswered.front();
    dialer.last().unanswered.pop_front();
    loop.OnResult(dialer.last().id, HonestResult(plan));
    Turn();
  }

  // Calls a unary handler and turns the loop once, if it did not answer at once. CHECKs that the
  // caller could read the answer: what protobuf would refuse to parse must not be sent.
  template <typename Service, typename Request, typename Response>
  grpc::Status Call(Service& service,
                    grpc::ServerUnaryReactor* (Service::*handler)(grpc::CallbackServerContext*,
                                                                  const Request*, Response*),
                    const Request& request, Response& response) {
    grpc::CallbackServerContext context;
    const grpc::testing::DefaultReactorTestPeer peer(&context);
    (service.*handler)(&context, &request, &response);
    Turn();
    CHECK(peer.test_status_set());
    CHECK(Response().ParseFromString(response.SerializeAsString()));
    const grpc::Status status = peer.test_status();
    CHECK(status.ok() || !status.error_message().empty());
    return status;
  }

  ManualClock clock;
  FakeDialer dialer;
  FakeObserver observer;
  Loop loop;
};

}  // namespace octavo
