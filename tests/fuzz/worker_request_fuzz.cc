// Whatever a scheduler sends to a worker: LoadModel and StartReplica as WorkerService handles them,
// plans as its Execute stream does, on a real backend and a small model. A call is refused with a
// reason and changes nothing, or is answered soundly; a plan's tokens are of the vocabulary. The
// input is one byte (15 modulo 16: a worker that has yet to load; else one that runs), then a list
// of actions: a byte (which), a byte of length, and the message.

#include <sys/mman.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"
#include "common/wire/rpc_server.h"
#include "common/wire/step_codec.h"
#include "glog/logging.h"
#include "grpcpp/test/default_reactor_test_peer.h"
#include "tests/fuzz/byte_source.h"
#include "tests/unit/common/model/gguf_builder.h"
#include "worker/rpc/worker_service.h"

namespace octavo {
namespace {

constexpr int kMaxActions = 12;
constexpr uint32_t kBlocks = 16;
constexpr uint32_t kContextLength = 128;  // of SmallLlama
constexpr TokenId kVocabSize = 40;

// A model of small finite weights, as a path.
std::string MakeModelFile() {
  std::string bytes = SmallLlama(1, TensorType::kF32).Build();
  const auto file = GgufFile::Parse(BytesOf(bytes)).value();
  for (const GgufTensor& tensor : file->tensors()) {
    char* data = bytes.data() + (tensor.data.data() - BytesOf(bytes).data());
    for (size_t i = 0; i < tensor.data.size() / sizeof(float); ++i) {
      const float weight = (static_cast<float>(i * 37 % 61) - 30) / 64;
      std::memcpy(data + i * sizeof(float), &weight, sizeof(float));
    }
  }
  const int descriptor = memfd_create("model", 0);
  CHECK_EQ(write(descriptor, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(descriptor);
}

class Worker {
 public:
  explicit Worker(const std::string& path)
      : host(WorkerHost::Create({.model_path = path, .threads = 1}).value()),
        service(*host, "instance", [] {}) {}

  template <typename Request, typename Response>
  absl::Status Call(grpc::ServerUnaryReactor* (WorkerServiceImpl::*handler)(
                        grpc::CallbackServerContext*, const Request*, Response*),
                    const Request& request, Response& response) {
    grpc::CallbackServerContext context;
    absl::Notification done;
    const grpc::testing::DefaultReactorTestPeer peer(
        &context, [&done](const grpc::Status&) { done.Notify(); });
    (service.*handler)(&context, &request, &response);
    done.WaitForNotification();                                 // set-up calls have a thread
    while (!peer.test_status_set()) std::this_thread::yield();  // which sets it right after
    CHECK(Response().ParseFromString(response.SerializeAsString()));
    return wire::FromGrpc(peer.test_status());
  }

  // For plans: loaded, and in a replica that holds no sequence. A plan changes nothing beyond its
  // replica, and there little that a reset leaves, so that one worker serves all inputs of plans.
  void MakeReady() {
    LoadRequest load{.model_fingerprint = host->model_fingerprint(),
                     .block_size = 4,
                     .max_step_tokens = 32,
                     .max_sequences = 4};
    CHECK(host->LoadModel(load).ok());
    const WorkerState state = host->GetState();
    if (!state.replica_id || state.executor.epoch.value() > UINT64_MAX / 2) {
      const Epoch epoch(state.highest_epoch.value() + 1);
      CHECK(host->StartReplica(ReplicaId(0), epoch, kBlocks).ok());
      block_count = kBlocks;
    }
    const StepPlan reset{.epoch = Epoch(host->GetState().executor.epoch.value() + 1),
                         .step = StepNumber(1),
                         .resets_state = true,
                         .layer_groups = {LayerGroupChange{}}};
    CHECK(Answer(reset).ok());
  }

  absl::StatusOr<StepResult> Answer(const StepPlan& plan) {
    std::promise<absl::StatusOr<StepResult>> answer;
    host->Submit(plan, [&answer](absl::StatusOr<StepResult> result) {
      answer.set_value(std::move(result));
    });
    return answer.get_future().get();
  }

  std::unique_ptr<WorkerHost> host;
  WorkerServiceImpl service;
  uint32_t block_count = 0;  // of the last replica
};

void CheckRefusal(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
        absl::IsResourceExhausted(status))
      << status;
  CHECK(!status.message().empty());
}

void LoadModel(Worker& worker, const std::string& message) {
  v1::LoadModelRequest request;
  if (!request.ParseFromString(message)) return;
  if (request.model_fingerprint() == 1)
    request.set_model_fingerprint(worker.host->model_fingerprint());
  v1::LoadModelResponse response;
  const absl::Status status = worker.Call(&WorkerServiceImpl::LoadModel, request, response);
  if (!status.ok()) return CheckRefusal(status);
  CHECK_LE(response.memory_plan().block_count(), response.memory_plan().max_block_count());
  CHECK(ParseKvType(response.kv_dtype()).ok());
}

void StartReplica(Worker& worker, const std::string& message) {
  v1::StartReplicaRequest request;
  if (!request.ParseFromString(message)) return;
  const Epoch before = worker.host->GetState().highest_epoch;
  v1::StartReplicaResponse response;
  const absl::Status status = worker.Call(&WorkerServiceImpl::StartReplica, request, response);
  v1::GetWorkerStateResponse state;
  CHECK(worker.Call(&WorkerServiceImpl::GetWorkerState, {}, state).ok());
  CHECK_GE(state.epoch(), before.value());
  if (!status.ok()) return CheckRefusal(status);
  worker.block_count = request.block_count();
  CHECK_EQ(state.epoch(), request.epoch());
  CHECK_EQ(state.replica_id(), request.replica_id());
  CHECK_EQ(worker.service.lease_ms(), request.lease_ms());
}

// What a plan that was taken may name, whoever checked it.
void CheckTaken(const StepPlan& plan, uint32_t block_count) {
  const auto check_block = [&](BlockId block) { CHECK_LT(block.value(), block_count); };
  for (const LayerGroupChange& change : plan.layer_groups) {
    for (const BlockId block : change.new_blocks) check_block(block);
    for (const TableEntryChange& entry : change.entry_changes) check_block(entry.block);
    for (const BlockCopy& copy : change.copies) {
      check_block(copy.source);
      check_block(copy.destination);
    }
  }
  for (const PlanRow& row : plan.rows)
    CHECK_LE(uint64_t{row.first_position} + row.token_count, kContextLength);
  for (const TokenId token : plan.token_ids) CHECK(token >= 0 && token < kVocabSize) << token;
}

// Hands the plan over and waits for its answer. A refused plan changed nothing.
absl::Status Submit(Worker& worker, const StepPlan& plan) {
  const ExecutorState before = worker.host->GetState().executor;
  const absl::StatusOr<StepResult> result = worker.Answer(plan);
  if (!result.ok()) {
    CheckRefusal(result.status());
    CHECK(worker.host->GetState().executor == before);
    return result.status();
  }
  CHECK(result->epoch == plan.epoch && result->step == plan.step);
  if (worker.host->GetState().executor == before) return absl::OkStatus();  // a repeated one
  CheckTaken(plan, worker.block_count);
  size_t wanted = 0;
  for (const PlanRow& row : plan.rows) {
    const bool failed = std::count(result->failed.begin(), result->failed.end(), row.sequence_id);
    wanted += row.samples && !failed;
  }
  CHECK_EQ(result->sampled.size(), wanted);
  const auto check_token = [](TokenId token) { CHECK(token >= 0 && token < kVocabSize) << token; };
  for (const TokenOutcome& it : result->sampled) check_token(it.token_id);
  for (const TokenOutcome& it : result->scored) check_token(it.token_id);
  for (const TokenLogprob& it : result->top) check_token(it.token_id);
  for (size_t group = 0; group < plan.layer_groups.size(); ++group)
    CHECK_EQ(result->digests[group], plan.layer_groups[group].digest);
  v1::StepResult sent;
  wire::EncodeResult(*result, sent);
  CHECK(wire::DecodeResult(sent).ok());
  return absl::OkStatus();
}

// With `repaired`, a plan in the order of steps, and with the digest that the worker says it has:
// no chance finds that number.
void Execute(Worker& worker, const std::string& message, bool repaired) {
  v1::ExecuteRequest request;
  if (!request.ParseFromString(message)) return;
  absl::StatusOr<StepPlan> plan = wire::DecodePlan(request.plan());
  if (!plan.ok()) return CheckRefusal(plan.status());
  if (!repaired) return (void)Submit(worker, *plan);
  const WorkerState state = worker.host->GetState();
  plan->replica_id = state.replica_id.value_or(ReplicaId());
  plan->epoch = state.executor.epoch;
  plan->step = StepNumber(state.executor.step.value() + 1);
  absl::Status status = Submit(worker, *plan);
  const auto reason = TakeReason(status);
  if (!reason || reason->reason != "DIGEST_MISMATCH") return;
  plan->layer_groups[0].digest = std::stoull(reason->numbers.at("worker_digest"), nullptr, 16);
  CHECK(Submit(worker, *plan).ok());
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  static const std::string* const kModelFile = [] {
    wire::SilenceParser();
    FLAGS_minloglevel = google::FATAL;
    return new std::string(MakeModelFile());
  }();
  static Worker* const running = new Worker(*kModelFile);
  ByteSource source({bytes, size});
  const bool sets_up = source.Below(16) == 15;
  const auto fresh = sets_up ? std::make_unique<Worker>(*kModelFile) : nullptr;
  Worker& worker = sets_up ? *fresh : *running;
  if (!sets_up) worker.MakeReady();
  for (int i = 0; i < kMaxActions && !source.empty(); ++i) {
    const size_t action = source.Below(sets_up ? 4 : 2);
    const std::string message = source.Text(255);
    if (action < 2) Execute(worker, message, action == 1);
    if (action == 2) LoadModel(worker, message);
    if (action == 3) StartReplica(worker, message);
  }
  return 0;
}
