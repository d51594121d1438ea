#include "worker/rpc/worker_host.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "glog/logging.h"

namespace octavo {
namespace {

absl::Status CheckLimit(const char* field, uint32_t value, uint32_t limit) {
  if (value >= 1 && value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; it must be 1 to ", limit));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerHost>> WorkerHost::Create(WorkerOptions options) {
  OCTAVO_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(options.model_path));
  OCTAVO_RETURN_IF_ERROR(ReadModelConfig(*file).status());
  const uint64_t fingerprint = file->Fingerprint();
  return std::unique_ptr<WorkerHost>(new WorkerHost(std::move(options), fingerprint));
}

absl::StatusOr<LoadedModel> WorkerHost::LoadModel(const LoadRequest& request) {
  if (request.model_fingerprint != model_fingerprint_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "model_fingerprint is %016x; this worker's file %s has %016x. Start scheduler and worker "
        "with the same model file",
        request.model_fingerprint, options_.model_path, model_fingerprint_));
  }
  if (request.world_size != 1 || request.rank != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.rank, " of world_size ",
                                                   request.world_size,
                                                   "; this worker serves world_size 1"));
  }
  OCTAVO_RETURN_IF_ERROR(CheckLimit("max_step_tokens", request.max_step_tokens, kMaxStepTokens));
  OCTAVO_RETURN_IF_ERROR(CheckLimit("max_sequences", request.max_sequences, kMaxSequences));
  absl::MutexLock setup(&setup_mutex_);
  if (loaded_request_ == request) {
    absl::MutexLock lock(&executor_mutex_);
    return *loaded_;
  }
  {
    absl::MutexLock lock(&executor_mutex_);
    executor_.reset();
    replica_id_.reset();
    loaded_.reset();
  }
  loaded_request_.reset();
  model_.reset();
  backend_.reset();
  OCTAVO_ASSIGN_OR_RETURN(backend_,
                          CreateCpuBackend({.threads = options_.threads, .isa = options_.isa}));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(options_.model_path));
  if (file->Fingerprint() != model_fingerprint_) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.model_path, " changed since this worker started; restart the worker"));
  }
  OCTAVO_ASSIGN_OR_RETURN(model_,
                          Model::Load(std::move(file), *backend_,
                                      ModelLimits{.max_tokens_per_step = request.max_step_tokens}));
  LoadedModel loaded{.layout = model_->MakeKvLayout(request.block_size, request.kv_type)};
  OCTAVO_RETURN_IF_ERROR(loaded.layout.Validate());
  loaded.memory_plan = model_->Plan(loaded.layout);
  LOG(INFO) << "loaded " << options_.model_path << " on " << backend_->Describe() << ": "
            << loaded.memory_plan.Describe(loaded.layout);
  loaded_request_ = request;
  absl::MutexLock lock(&executor_mutex_);
  device_ = backend_->Describe();
  loaded_ = loaded;
  return loaded;
}

absl::Status WorkerHost::StartReplica(ReplicaId replica, Epoch epoch, uint32_t block_count) {
  absl::MutexLock setup(&setup_mutex_);
  if (!loaded_request_.has_value()) {
    return absl::FailedPreconditionError("no model is loaded: call LoadModel first");
  }
  absl::MutexLock lock(&executor_mutex_);
  if (epoch < highest_epoch_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch is ", epoch.value(), "; this worker has seen ", highest_epoch_.value()));
  }
  highest_epoch_ = epoch;
  executor_.reset();
  replica_id_.reset();
  OCTAVO_ASSIGN_OR_RETURN(
      executor_, Executor::Create(*model_, {.replica_id = replica,
                                            .epoch = epoch,
                                            .rank = loaded_request_->rank,
                                            .block_size = loaded_request_->block_size,
                                            .kv_type = loaded_request_->kv_type,
                                            .num_blocks = block_count,
                                            .max_sequences = loaded_request_->max_sequences}));
  replica_id_ = replica;
  LOG(INFO) << "replica " << replica << " epoch " << epoch << ": pool of "
            << executor_->num_blocks() << " blocks of " << loaded_request_->block_size << " tokens";
  return absl::OkStatus();
}

void WorkerHost::Submit(const StepPlan& plan, Executor::Done done) {
  absl::ReleasableMutexLock lock(&executor_mutex_);
  if (executor_ == nullptr) {
    lock.Release();
    done(absl::FailedPreconditionError("no replica is started: call StartReplica first"));
    return;
  }
  executor_->Submit(plan, std::move(done));
}

WorkerState WorkerHost::GetState() const {
  absl::MutexLock lock(&executor_mutex_);
  WorkerState state{.replica_id = replica_id_,
                    .highest_epoch = highest_epoch_,
                    .model = loaded_,
                    .device = device_};
  if (executor_ != nullptr) state.executor = executor_->GetState();
  return state;
}

}  // namespace octavo
