#include "worker/rpc/worker_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"

namespace octavo {
namespace {

constexpr size_t kMaxSetupCalls = 64;

void EncodeMemoryPlan(const MemoryPlan& plan, v1::MemoryPlan& message) {
  message.set_total_bytes(plan.total_bytes);
  message.set_weight_bytes(plan.weight_bytes);
  message.set_file_backed_bytes(plan.file_backed_bytes);
  message.set_activation_bytes(plan.activation_bytes);
  message.set_bytes_per_block(plan.bytes_per_block);
  message.set_pool_bytes(uint64_t{plan.default_blocks} * plan.bytes_per_block);
  message.set_block_count(plan.default_blocks);
  message.set_max_block_count(plan.max_blocks);
}

absl::StatusOr<LoadRequest> DecodeLoadRequest(const v1::LoadModelRequest& message) {
  LoadRequest request{.model_fingerprint = message.model_fingerprint(),
                      .rank = message.rank(),
                      .world_size = message.world_size(),
                      .block_size = message.block_size(),
                      .max_step_tokens = message.max_step_tokens(),
                      .max_sequences = message.max_sequences()};
  if (message.block_size() < 1 || message.block_size() > kMaxBlockSize) {
    return wire::InvalidField("block_size", absl::StrCat("block_size is ", message.block_size(),
                                                         "; it must be 1 to ", kMaxBlockSize));
  }
  if (!message.kv_dtype().empty()) {
    OCTAVO_ASSIGN_OR_RETURN(request.kv_type, ParseKvType(message.kv_dtype()));
  }
  return request;
}

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(WorkerHost& host, std::string instance_id,
                                     std::function<void()> on_plan)
    : host_(host),
      instance_id_(std::move(instance_id)),
      on_plan_(std::move(on_plan)),
      setup_calls_(kMaxSetupCalls),
      setup_thread_([this] {
        while (true) {
          const auto calls = setup_calls_.TakeAll(absl::InfiniteFuture());
          if (calls.empty()) return;
          for (const auto& call : calls) call();
        }
      }) {}

WorkerServiceImpl::~WorkerServiceImpl() {
  setup_calls_.Close();
  setup_thread_.join();
}

grpc::ServerUnaryReactor* WorkerServiceImpl::RunSetup(grpc::CallbackServerContext* context,
                                                      std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!setup_calls_.TryPush(
          [reactor, call = std::move(call)] { reactor->Finish(wire::ToGrpc(call())); })) {
    reactor->Finish(wire::ToGrpc(WithRetryDelay(
        WithReason(absl::ResourceExhaustedError(
                       absl::StrCat(kMaxSetupCalls, " set-up calls are waiting; call again later")),
                   "TOO_MANY_CALLS", {{"limit", kMaxSetupCalls}}),
        absl::Seconds(1))));
  }
  return reactor;
}

grpc::ServerUnaryReactor* WorkerServiceImpl::LoadModel(grpc::CallbackServerContext* context,
                                                       const v1::LoadModelRequest* request,
                                                       v1::LoadModelResponse* response) {
  return RunSetup(context, [this, request, response]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const LoadRequest load, DecodeLoadRequest(*request));
    OCTAVO_ASSIGN_OR_RETURN(const LoadedModel loaded, host_.LoadModel(load));
    EncodeMemoryPlan(loaded.memory_plan, *response->mutable_memory_plan());
    response->set_kv_layout_fingerprint(loaded.layout.Fingerprint());
    response->set_kv_dtype(KvTypeName(loaded.layout.kv_type));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::StartReplica(grpc::CallbackServerContext* context,
                                                          const v1::StartReplicaRequest* request,
                                                          v1::StartReplicaResponse*) {
  return RunSetup(context, [this, request]() -> absl::Status {
    if (request->block_count() == 0) {
      return wire::InvalidField("block_count", "block_count is 0; a pool has at least 1 block");
    }
    const Epoch epoch(request->epoch());
    if (epoch >= host_.GetState().highest_epoch) {
      EndStream(absl::AbortedError(absl::StrCat("a replica of epoch ", epoch.value(), " begins")));
    }
    OCTAVO_RETURN_IF_ERROR(
        host_.StartReplica(ReplicaId(request->replica_id()), epoch, request->block_count()));
    lease_ms_ = request->lease_ms();
    return absl::OkStatus();
  });
}

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* WorkerServiceImpl::Execute(
    grpc::CallbackServerContext*) {
  const std::shared_ptr<ExecuteStream> stream = ExecuteStream::Start(host_, on_plan_);
  std::shared_ptr<ExecuteStream> previous;
  {
    absl::MutexLock lock(&stream_mutex_);
    previous = stream_.lock();
    stream_ = stream;
  }
  if (previous != nullptr) {
    previous->End(absl::AbortedError("a newer Execute stream took this one's place"));
  }
  return stream.get();
}

void WorkerServiceImpl::EndStream(const absl::Status& status) {
  std::shared_ptr<ExecuteStream> stream;
  {
    absl::MutexLock lock(&stream_mutex_);
    stream = stream_.lock();
    stream_.reset();
  }
  if (stream != nullptr) stream->End(status);
}

grpc::ServerUnaryReactor* WorkerServiceImpl::GetWorkerState(grpc::CallbackServerContext* context,
                                                            const v1::GetWorkerStateRequest*,
                                                            v1::GetWorkerStateResponse* response) {
  const WorkerState state = host_.GetState();
  response->set_instance_id(instance_id_);
  if (state.replica_id.has_value()) response->set_replica_id(state.replica_id->value());
  response->set_epoch(state.highest_epoch.value());
  response->set_step(state.executor.step.value());
  response->set_sequence_count(state.executor.sequence_count);
  response->mutable_digests()->Add(state.executor.digests.begin(), state.executor.digests.end());
  if (state.model.has_value()) {
    EncodeMemoryPlan(state.model->memory_plan, *response->mutable_memory_plan());
  }
  response->set_device(state.device.empty() ? "cpu" : state.device);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace octavo
