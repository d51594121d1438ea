#include "scheduler/rpc/fleet_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/wire/errors.h"
#include "scheduler/rpc/loop_call.h"

namespace octavo {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr int kMaxKvDtypes = 16;

v1::WorkerState EncodeState(WorkerState state) {
  switch (state) {
    case WorkerState::kRegistered:
      return v1::WORKER_STATE_REGISTERED;
    case WorkerState::kLoading:
      return v1::WORKER_STATE_LOADING;
    case WorkerState::kReady:
      return v1::WORKER_STATE_READY;
    case WorkerState::kLost:
      return v1::WORKER_STATE_LOST;
  }
  return v1::WORKER_STATE_UNSPECIFIED;
}

absl::Status CheckName(absl::string_view field, const std::string& value) {
  if (!value.empty() && value.size() <= kMaxNameBytes) return absl::OkStatus();
  return wire::InvalidField(field, absl::StrCat(field, " has size ", value.size(),
                                                "; it must be 1 to ", kMaxNameBytes, " bytes"));
}

absl::StatusOr<WorkerDescription> Decode(const v1::WorkerDescription& message) {
  for (const auto& [field, value] :
       {std::pair<const char*, const std::string*>{"worker.instance_id", &message.instance_id()},
        {"worker.address", &message.address()},
        {"worker.device", &message.device()}}) {
    OCTAVO_RETURN_IF_ERROR(CheckName(field, *value));
  }
  if (message.kv_dtypes_size() < 1 || message.kv_dtypes_size() > kMaxKvDtypes) {
    return wire::InvalidField("worker.kv_dtypes",
                              absl::StrCat("worker.kv_dtypes has size ", message.kv_dtypes_size(),
                                           "; it must be 1 to ", kMaxKvDtypes));
  }
  return WorkerDescription{.instance_id = message.instance_id(),
                           .address = message.address(),
                           .device = message.device(),
                           .memory_bytes = message.memory_bytes(),
                           .min_block_size = message.min_block_size(),
                           .max_block_size = message.max_block_size(),
                           .kv_dtypes = {message.kv_dtypes().begin(), message.kv_dtypes().end()},
                           .model_fingerprint = message.model_fingerprint(),
                           .process_id = message.process_id(),
                           .version = message.version()};
}

void Encode(const WorkerDescription& worker, v1::WorkerDescription& message) {
  message.set_instance_id(worker.instance_id);
  message.set_address(worker.address);
  message.set_device(worker.device);
  message.set_memory_bytes(worker.memory_bytes);
  message.set_min_block_size(worker.min_block_size);
  message.set_max_block_size(worker.max_block_size);
  for (const std::string& dtype : worker.kv_dtypes) message.add_kv_dtypes(dtype);
  message.set_model_fingerprint(worker.model_fingerprint);
  message.set_process_id(worker.process_id);
  message.set_version(worker.version);
}

}  // namespace

grpc::ServerUnaryReactor* FleetService::RegisterWorker(grpc::CallbackServerContext* context,
                                                       const v1::RegisterWorkerRequest* request,
                                                       v1::RegisterWorkerResponse* response) {
  absl::StatusOr<WorkerDescription> worker = Decode(request->worker());
  if (!worker.ok()) return AnswerNow(context, worker.status());
  return AnswerOnLoop(context, loop_, [this, worker = *std::move(worker), response] {
    const absl::StatusOr<WorkerState> state = loop_->RegisterWorker(worker);
    if (!state.ok()) return state.status();
    response->set_heartbeat_ms(
        static_cast<uint32_t>(absl::ToInt64Milliseconds(loop_->fleet().options().heartbeat)));
    response->set_state(EncodeState(*state));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* FleetService::ListWorkers(grpc::CallbackServerContext* context,
                                                    const v1::ListWorkersRequest*,
                                                    v1::ListWorkersResponse* response) {
  return AnswerOnLoop(context, loop_, [this, response] {
    for (const auto& [instance, worker] : loop_->fleet().workers()) {
      v1::FleetWorker& message = *response->add_workers();
      Encode(worker.description, *message.mutable_worker());
      message.set_state(EncodeState(worker.state));
      message.set_detail(worker.detail);
      message.set_silent_ms(
          static_cast<uint64_t>(absl::ToInt64Milliseconds(loop_->now() - worker.last_seen)));
      if (instance == loop_->fleet().replica_instance()) message.set_replica_id(0);
    }
    return absl::OkStatus();
  });
}

}  // namespace octavo
