// Whatever a worker says to the scheduler: registrations, what LoadModel and StartReplica answer,
// results of steps, ends of streams, in any order that gRPC allows and at any time. It is refused,
// or serves; the engine's invariants hold, pools stay within their limit, epochs rise, and every
// request ends exactly once. The input is a list of actions: a byte (which), then what it takes; a
// message is a byte of length and its bytes.

#include <map>
#include <string>
#include <vector>

#include "common/wire/rpc_server.h"
#include "common/wire/step_codec.h"
#include "scheduler/rpc/fleet_service.h"
#include "scheduler/rpc/memory_plan.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/scheduler_world.h"

namespace octavo {
namespace {

constexpr uint32_t kMaxBlocks = 100;
constexpr int kMaxActions = 32;

LoopOptions FleetFuzzOptions(bool overlapping) {
  LoopOptions options = SchedulerWorld::Options();
  options.engine.vocab_size = kLastToken + 1;
  options.engine.max_steps_in_flight = overlapping ? 2 : 1;
  options.fleet.max_pool_blocks = kMaxBlocks;
  return options;
}

class Conversation {
 public:
  Conversation(const ServedModel* model, ByteSource source)
      : source_(source), world_(model, FleetFuzzOptions(source_.Flag())), service_(&world_.loop) {}

  void Run() {
    for (int i = 0; i < kMaxActions && !source_.empty(); ++i) {
      Act(source_.Below(10));
      world_.Turn();
      CheckFleet();
    }
    world_.loop.EndAll(absl::CancelledError("the end"));
    world_.Turn();
    CHECK_EQ(world_.loop.session_count(), 0u);
    for (const auto& sink : sinks_) CHECK_EQ(sink->ends.size(), 1u);
  }

 private:
  // What a link was asked and has not answered: gRPC lets it answer each call once.
  struct Answered {
    size_t loads = 0, starts = 0;
    int streams = 0;
  };

  void Act(size_t action) {
    if (action == 0) return Register();
    if (action == 1) return Submit();
    if (action == 2) return world_.clock.Advance(absl::Milliseconds(20) * source_.Below(256));
    if (world_.dialer.links.empty()) return;
    // Mostly the present link, at times one that is gone.
    auto& links = world_.dialer.links;
    const size_t index = links.size() - 1 - std::min(links.size() - 1, source_.Below(8) / 6);
    FakeDialer::Link& link = *links[index];
    Answered& answered = answered_[index];
    if (action <= 4 && answered.loads < link.loads.size()) {
      ++answered.loads;
      return AnswerLoad(link, action == 3);
    }
    if (action == 5 && answered.starts < link.starts.size()) {
      ++answered.starts;
      return world_.loop.OnReplicaStarted(link.id, Status());
    }
    if (answered.streams == link.streams) return;
    if (action == 6) {
      ++answered.streams;
      link.unanswered.clear();
      return world_.loop.OnStreamEnded(link.id, Status());
    }
    if (action == 7 && !link.unanswered.empty()) {
      world_.loop.OnResult(link.id, SchedulerWorld::HonestResult(link.unanswered.front()));
      return link.unanswered.pop_front();
    }
    if (action >= 8) Result(link, action == 9);
  }

  std::string Message() { return source_.Text(255); }
  absl::Status Status() {
    const auto code = static_cast<absl::StatusCode>(source_.Below(17));
    return code == absl::StatusCode::kOk ? absl::OkStatus() : absl::Status(code, "said the worker");
  }

  void Register() {
    v1::RegisterWorkerRequest request;
    if (!request.ParseFromString(Message())) return;
    request.DiscardUnknownFields();
    v1::RegisterWorkerResponse response;
    const grpc::Status status =
        world_.Call(service_, &FleetService::RegisterWorker, request, response);
    if (!status.ok()) return;
    CHECK_NE(response.state(), v1::WORKER_STATE_UNSPECIFIED);
    v1::ListWorkersResponse workers;
    CHECK(
        world_.Call(service_, &FleetService::ListWorkers, v1::ListWorkersRequest(), workers).ok());
    size_t found = 0;
    for (const v1::FleetWorker& worker : workers.workers())
      found += worker.worker().SerializeAsString() == request.worker().SerializeAsString();
    CHECK_EQ(found, 1u) << "a worker is listed as it described itself";
  }

  void Submit() {
    const uint32_t prompt_tokens = 1 + static_cast<uint32_t>(source_.Below(200));
    const uint32_t max_tokens = 1 + static_cast<uint32_t>(source_.Below(200));
    sinks_.push_back(world_.Submit("", prompt_tokens, max_tokens));
  }

  void AnswerLoad(const FakeDialer::Link& link, bool sound) {
    if (sound) return world_.loop.OnModelLoaded(link.id, SmallLoadedModel(16));
    v1::LoadModelResponse response;
    if (!response.ParseFromString(Message()))
      return world_.loop.OnModelLoaded(link.id, absl::InternalError("not a message"));
    LoadedModel loaded = DecodeLoadedModel(response);
    if (source_.Flag()) loaded.kv_layout_fingerprint = SmallLayout().Fingerprint();
    world_.loop.OnModelLoaded(link.id, loaded);
  }

  // With `repaired`, it names the oldest step as its plan does, so that what it claims is looked
  // at.
  void Result(const FakeDialer::Link& link, bool repaired) {
    v1::StepResult message;
    if (!message.ParseFromString(Message())) return;
    absl::StatusOr<StepResult> result = wire::DecodeResult(message);
    if (!result.ok()) return;
    if (repaired && !link.unanswered.empty()) {
      const StepPlan& plan = link.unanswered.front();
      const StepResult honest = SchedulerWorld::HonestResult(plan);
      result->replica_id = plan.replica_id;
      result->epoch = plan.epoch;
      result->step = plan.step;
      result->digests = honest.digests;
      const size_t kept = std::min(result->sampled.size(), honest.sampled.size());
      for (size_t i = 0; i < kept; ++i) {
        result->sampled[i].sequence_id = honest.sampled[i].sequence_id;
        result->sampled[i].position = honest.sampled[i].position;
      }
    }
    world_.loop.OnResult(link.id, *std::move(result));
  }

  void CheckFleet() {
    const Fleet& fleet = world_.loop.fleet();
    CHECK_LE(fleet.workers().size(), kMaxWorkers);
    CHECK_LE(fleet.block_count(), kMaxBlocks);
    CHECK_EQ(fleet.ready(), world_.loop.engine().replica_ready());
    Epoch last;
    for (const auto& link : world_.dialer.links) {
      for (const StartReplicaCall& call : link->starts) {
        CHECK(last < call.epoch);
        last = call.epoch;
        CHECK(call.block_count >= 1 && call.block_count <= kMaxBlocks);
      }
    }
  }

  ByteSource source_;
  SchedulerWorld world_;
  FleetService service_;
  std::map<size_t, Answered> answered_;  // by the link's index
  std::vector<std::shared_ptr<FakeSink>> sinks_;
};

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  static const ServedModel* const kModel = [] {
    wire::SilenceParser();
    FLAGS_minloglevel = google::FATAL;
    return new ServedModel(MakeServedModel());
  }();
  Conversation(kModel, ByteSource({bytes, size})).Run();
  return 0;
}
