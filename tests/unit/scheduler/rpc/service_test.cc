// The services on a real gRPC server over loopback, with the real loop and a scripted worker: what
// a client sees on the wire.

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/sample_seed.h"
#include "common/wire/errors.h"
#include "common/wire/rpc_server.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "scheduler/rpc/admin_service.h"
#include "scheduler/rpc/fleet_service.h"
#include "scheduler/rpc/generation_service.h"
#include "scheduler/rpc/token_stream.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A worker that loads at once and answers each plan at once with the byte 'x' for every sampling
// row.
class InstantDialer final : public WorkerDialer {
 public:
  std::unique_ptr<WorkerClient> Dial(const std::string&, LinkId link,
                                     WorkerEvents* events) override {
    return std::make_unique<Client>(link, events);
  }

 private:
  class Client final : public WorkerClient {
   public:
    Client(LinkId link, WorkerEvents* events) : link_(link), events_(events) {}
    void LoadModel(const LoadModelCall&) override {
      events_->OnModelLoaded(link_, SmallLoadedModel());
    }
    void StartReplica(const StartReplicaCall&) override {
      events_->OnReplicaStarted(link_, absl::OkStatus());
    }
    void OpenStream() override {}
    void SendPlan(const StepPlan& plan) override {
      StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
      for (const LayerGroupChange& change : plan.layer_groups)
        result.digests.push_back(change.digest);
      for (const PlanRow& row : plan.rows) {
        if (!row.samples) continue;
        result.sampled.push_back({.sequence_id = row.sequence_id,
                                  .position = row.first_position + row.token_count,
                                  .token_id = 'x'});
      }
      events_->OnResult(link_, std::move(result));
    }

   private:
    const LinkId link_;
    WorkerEvents* const events_;
  };
};

ServedModel SmallModel() {
  ServedModel model;
  model.name = "small";
  model.config.context_length = 128;
  model.config.vocab_size = 257;
  model.tokenizer = ByteTokenizer();
  return model;
}

LoopOptions SmallOptions() {
  LoopOptions options;
  options.engine.context_length = 128;
  options.engine.max_step_tokens = 64;
  options.engine.max_sequences = 8;
  options.fleet.model_fingerprint = 42;
  options.fleet.layout = SmallLayout();
  return options;
}

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : thread_([this] { loop_.Run(); }) {
    auto server = wire::RpcServer::Start({"127.0.0.1:0"},
                                         {&generation_service_, &admin_service_, &fleet_service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const auto channel =
        grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    generation_ = v1::GenerationService::NewStub(channel);
    admin_ = v1::AdminService::NewStub(channel);
    fleet_ = v1::FleetService::NewStub(channel);
  }
  ~ServiceTest() override {
    server_->Shutdown(absl::Now() + absl::Seconds(5));
    loop_.Stop();
    thread_.join();
  }

  grpc::Status Register(uint64_t fingerprint = 42) {
    grpc::ClientContext context;
    v1::RegisterWorkerRequest request;
    v1::RegisterWorkerResponse response;
    v1::WorkerDescription& worker = *request.mutable_worker();
    worker.set_instance_id("a");
    worker.set_address("worker:1");
    worker.set_device("fake");
    worker.set_min_block_size(1);
    worker.set_max_block_size(256);
    worker.add_kv_dtypes("f16");
    worker.set_model_fingerprint(fingerprint);
    return fleet_->RegisterWorker(&context, request, &response);
  }

  struct Answer {
    std::vector<v1::GenerateResponse> chunks;
    grpc::Status status;
    std::string request_id, queue_ms;
  };
  Answer Generate(const v1::GenerateRequest& request) {
    Answer answer;
    grpc::ClientContext context;
    auto reader = generation_->Generate(&context, request);
    v1::GenerateResponse chunk;
    while (reader->Read(&chunk)) answer.chunks.push_back(chunk);
    answer.status = reader->Finish();
    const auto value = [](const auto& metadata, const char* key) {
      const auto found = metadata.find(key);
      return found == metadata.end() ? std::string()
                                     : std::string(found->second.data(), found->second.size());
    };
    answer.request_id = value(context.GetServerInitialMetadata(), "x-request-id");
    answer.queue_ms = value(context.GetServerTrailingMetadata(), "octavo-queue-ms");
    return answer;
  }

  // Asks until the request is in this state; the test's time limit ends what never comes.
  void AwaitState(const std::string& name, v1::RequestState state) {
    v1::GetRequestRequest request;
    request.set_request_id(name);
    v1::GetRequestResponse response;
    do {
      grpc::ClientContext context;
      const grpc::Status status = admin_->GetRequest(&context, request, &response);
      ASSERT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND)
          << status.error_message();
    } while (response.request().state() != state);
  }

  const ServedModel model_ = SmallModel();
  const RealClock clock_;
  InstantDialer dialer_;
  FakeObserver observer_;
  Loop loop_{SmallOptions(), model_.tokenizer.get(), &clock_, &dialer_, &observer_};
  GenerationService generation_service_{{}, &model_, &loop_};
  AdminService admin_service_{{}, &model_, &loop_, &clock_};
  FleetService fleet_service_{&loop_};
  std::thread thread_;
  std::unique_ptr<wire::RpcServer> server_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::FleetService::Stub> fleet_;
};

// Its bound is one byte beyond the snapshot: the first blocks stored are too many.
TEST_F(ServiceTest, AWatcherTooFarBehindIsToldSoAndNobodyElseIsHeldUp) {
  AdminService strict({.max_unsent_event_bytes = 1}, &model_, &loop_, &clock_);
  const auto server = wire::RpcServer::Start({"127.0.0.1:0"}, {&strict});
  ASSERT_TRUE(server.ok());
  const auto stub = v1::AdminService::NewStub(
      grpc::CreateChannel((*server)->addresses()[0], grpc::InsecureChannelCredentials()));
  ASSERT_TRUE(Register().ok());
  grpc::ClientContext slow_context, quick_context;
  const auto slow = stub->WatchKvEvents(&slow_context, {});
  const auto quick = admin_->WatchKvEvents(&quick_context, {});
  v1::WatchKvEventsResponse response;
  ASSERT_TRUE(slow->Read(&response));
  ASSERT_TRUE(quick->Read(&response));
  ASSERT_EQ(response.events_size(), 1);
  EXPECT_EQ(response.events(0).cleared().reason(), v1::KV_CLEAR_REASON_SNAPSHOT);
  v1::GenerateRequest request;
  request.set_text("hello, world");
  request.set_max_tokens(5);
  EXPECT_TRUE(Generate(request).status.ok());
  ASSERT_TRUE(quick->Read(&response));
  EXPECT_EQ(response.events(0).sequence_number(), 1u);
  EXPECT_EQ(response.events(0).stored().token_count(), 4u);
  EXPECT_EQ(response.events(0).stored().token_ids_size(), 0);
  EXPECT_FALSE(slow->Read(&response));
  absl::Status ended = wire::FromGrpc(slow->Finish());
  EXPECT_EQ(ended.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(ended), "SLOW_WATCHER");
  EXPECT_TRUE(Generate(request).status.ok());
  quick_context.TryCancel();
  (*server)->Shutdown(absl::Now() + absl::Seconds(5));
}

TEST_F(ServiceTest, StreamsACompletionWithMetadataCountsAndReason) {
  ASSERT_TRUE(Register().ok());
  v1::GenerateRequest request;
  request.set_text("hello");
  request.set_max_tokens(5);
  request.set_request_id("mine");
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.request_id, "mine");
  EXPECT_FALSE(answer.queue_ms.empty());
  std::string text;
  int tokens = 0;
  for (const v1::GenerateResponse& chunk : answer.chunks) {
    text += chunk.text();
    tokens += chunk.token_ids_size();
    EXPECT_EQ(static_cast<int>(chunk.usage().completion_tokens()), tokens);
  }
  EXPECT_EQ(text, "xxxxx");
  EXPECT_EQ(answer.chunks.back().finish_reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(answer.chunks.back().usage().prompt_tokens(), 5u);
}

TEST_F(ServiceTest, NamesWhatMatched) {
  ASSERT_TRUE(Register().ok());
  v1::GenerateRequest request;
  request.set_text("hello");
  request.add_stop("xxx");
  const Answer by_string = Generate(request);
  ASSERT_FALSE(by_string.chunks.empty());
  EXPECT_EQ(by_string.chunks.back().finish_reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(by_string.chunks.back().matched_string(), "xxx");
  request.clear_stop();
  request.mutable_sampling()->add_stop_token_ids('x');
  const Answer by_token = Generate(request);
  ASSERT_FALSE(by_token.chunks.empty());
  EXPECT_EQ(by_token.chunks.back().finish_reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(by_token.chunks.back().matched_token_id(), static_cast<uint32_t>('x'));
}

TEST_F(ServiceTest, EachSampleNamesItsIndexItsSeedAndItsEnd) {
  ASSERT_TRUE(Register().ok());
  v1::GenerateRequest request;
  request.set_text("hello");
  request.set_n(3);
  request.set_max_tokens(4);
  request.mutable_sampling()->set_seed(7);
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  std::map<uint32_t, std::string> texts;
  std::map<uint32_t, int> ends;
  uint32_t tokens = 0;
  for (const v1::GenerateResponse& chunk : answer.chunks) {
    EXPECT_EQ(ends[chunk.index()], 0) << "nothing follows an end";
    EXPECT_EQ(chunk.seed(), SampleSeed(7, chunk.index()));
    texts[chunk.index()] += chunk.text();
    ends[chunk.index()] += chunk.finish_reason() == v1::FINISH_REASON_MAX_TOKENS;
    tokens += static_cast<uint32_t>(chunk.token_ids_size());
    EXPECT_EQ(chunk.usage().completion_tokens(), tokens);
  }
  EXPECT_THAT(texts, ElementsAre(Pair(0, "xxxx"), Pair(1, "xxxx"), Pair(2, "xxxx")));
  EXPECT_THAT(ends, ElementsAre(Pair(0, 1), Pair(1, 1), Pair(2, 1)));
}

TEST_F(ServiceTest, ABadFieldIsInvalidArgumentWithDetails) {
  const Answer answer = Generate({});
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("prompt is missing"));
  EXPECT_EQ(ReasonOf(wire::FromGrpc(answer.status)), "INVALID_FIELD");
}

TEST_F(ServiceTest, ADrainingServerIsUnavailableAndSaysWhenToComeBack) {
  ASSERT_TRUE(Register().ok());
  grpc::ClientContext context;
  v1::DrainResponse response;
  ASSERT_TRUE(admin_->Drain(&context, {}, &response).ok());
  v1::GenerateRequest request;
  request.set_text("hello");
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(wire::FromGrpc(answer.status)), "DRAINING");
  EXPECT_GT(RetryDelay(wire::FromGrpc(answer.status)), absl::ZeroDuration());
}

TEST_F(ServiceTest, ACancelledCallEndsItsRequestInTheQueue) {
  // No worker: the request waits, and the client gives up.
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_text("hello");
  request.set_request_id("gone");
  auto reader = generation_->Generate(&context, request);
  AwaitState("gone", v1::REQUEST_STATE_QUEUED);
  context.TryCancel();
  v1::GenerateResponse chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  AwaitState("gone", v1::REQUEST_STATE_FINISHED);
}

TEST_F(ServiceTest, AWorkerOfAnotherModelIsRefusedWithBothFingerprints) {
  const grpc::Status status = Register(43);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  absl::Status seen = wire::FromGrpc(status);
  EXPECT_EQ(TakeReason(seen),
            (StatusReason{"ANOTHER_MODEL",
                          {{"served_fingerprint", "42"}, {"worker_fingerprint", "43"}}}));
}

TEST_F(ServiceTest, WhatIsNotThereIsNotFoundByName) {
  grpc::ClientContext context;
  v1::GetRequestRequest request;
  request.set_request_id("nobody");
  v1::GetRequestResponse response;
  absl::Status status = wire::FromGrpc(admin_->GetRequest(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TakeReason(status), (StatusReason{"UNKNOWN_REQUEST_ID", {{"request_id", "nobody"}}}));
}

TEST(ClientStatusTest, WithoutAReasonItIsTheCodesNameAndOnlyUnavailableIsWorthTryingAgain) {
  for (const auto& [status, reason] :
       {std::pair{absl::InternalError("x"), "INTERNAL"},
        std::pair{absl::FailedPreconditionError("x"), "FAILED_PRECONDITION"},
        std::pair{absl::ResourceExhaustedError("x"), "RESOURCE_EXHAUSTED"},
        std::pair{absl::UnavailableError("x"), "UNAVAILABLE"}}) {
    const absl::Status seen = wire::FromGrpc(ClientStatus(status));
    EXPECT_EQ(seen.code(), status.code());
    EXPECT_EQ(ReasonOf(seen), reason);
    EXPECT_EQ(RetryDelay(seen) > absl::ZeroDuration(), absl::IsUnavailable(status)) << reason;
  }
  const absl::Status full =
      WithRetryDelay(WithReason(absl::ResourceExhaustedError("x"), "QUEUE_FULL", {{"limit", 4}}),
                     absl::Milliseconds(2500));
  EXPECT_EQ(wire::FromGrpc(ClientStatus(full)), full) << "what a room said stands";
}

TEST_F(ServiceTest, AdminShowsStateBlocksAndTheTrace) {
  ASSERT_TRUE(Register().ok());
  v1::GenerateRequest request;
  request.set_text("hello world");
  request.set_max_tokens(3);
  ASSERT_TRUE(Generate(request).status.ok());
  v1::GetSchedulerStateResponse state;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(admin_->GetSchedulerState(&context, {}, &state).ok());
  }
  EXPECT_EQ(state.model(), "small");
  EXPECT_EQ(state.pools(0).block_count(), 64u);
  EXPECT_EQ(state.pools(0).held_blocks(), 0u);
  EXPECT_EQ(state.pools(0).free_blocks() + state.pools(0).cached_blocks(), 64u);
  EXPECT_EQ(state.generation_tokens(), 3u);
  uint32_t listed = 0;
  std::string token;
  do {
    grpc::ClientContext context;
    v1::ListBlocksRequest ask;
    ask.set_page_size(25);
    ask.set_page_token(token);
    v1::ListBlocksResponse page;
    ASSERT_TRUE(admin_->ListBlocks(&context, ask, &page).ok());
    listed += page.blocks_size();
    token = page.next_page_token();
  } while (!token.empty());
  EXPECT_EQ(listed, 64u);
  {
    grpc::ClientContext context;
    v1::LookupPrefixRequest ask;
    ask.set_text("hello world");
    v1::LookupPrefixResponse found;
    ASSERT_TRUE(admin_->LookupPrefix(&context, ask, &found).ok());
    EXPECT_EQ(found.prompt_tokens(), 11u);
    EXPECT_EQ(found.hit_tokens(), 10u);
    EXPECT_EQ(found.blocks_size(), 3);
  }
  {
    grpc::ClientContext context;
    v1::GetStepTraceRequest ask;
    ask.set_include_tokens(true);
    v1::GetStepTraceResponse trace;
    ASSERT_TRUE(admin_->GetStepTrace(&context, ask, &trace).ok());
    ASSERT_GE(trace.steps_size(), 3);
    EXPECT_EQ(trace.steps(0).plan().token_ids_size(), 0)
        << "tokens are shown only with --log_prompts";
  }
  grpc::ClientContext context;
  v1::ListBlocksRequest ask;
  ask.set_page_token("nonsense");
  v1::ListBlocksResponse page;
  EXPECT_EQ(admin_->ListBlocks(&context, ask, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace octavo
