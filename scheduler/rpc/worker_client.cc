#include "scheduler/rpc/worker_client.h"

#include <deque>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/errors.h"
#include "common/wire/rpc_server.h"
#include "common/wire/step_codec.h"
#include "grpcpp/grpcpp.h"
#include "octavo/v1/worker_service.grpc.pb.h"
#include "scheduler/rpc/memory_plan.h"

namespace octavo {
namespace {

// Reading and repacking tens of gigabytes takes minutes; a worker that died is noticed by the
// channel long before.
constexpr absl::Duration kLoadDeadline = absl::Minutes(30);
constexpr absl::Duration kStartDeadline = absl::Minutes(2);

class GrpcWorkerClient final : public WorkerClient {
 public:
  GrpcWorkerClient(const std::string& address, LinkId link, WorkerEvents* events)
      : link_(link),
        events_(events),
        stub_(v1::WorkerService::NewStub(grpc::CreateCustomChannel(
            address, grpc::InsecureChannelCredentials(), wire::PeerChannelArguments()))) {}

  ~GrpcWorkerClient() override {
    absl::MutexLock lock(&mutex_);
    for (grpc::ClientContext* context : open_calls_) context->TryCancel();
    mutex_.Await(absl::Condition(+[](size_t* calls) { return *calls == 0; }, &live_calls_));
  }

  void LoadModel(const LoadModelCall& call) override {
    v1::LoadModelRequest request;
    request.set_model_fingerprint(call.model_fingerprint);
    request.set_rank(call.rank);
    request.set_world_size(call.world_size);
    request.set_block_size(call.block_size);
    request.set_kv_dtype(call.kv_dtype);
    request.set_max_step_tokens(call.max_step_tokens);
    request.set_max_sequences(call.max_sequences);
    Start<v1::LoadModelRequest, v1::LoadModelResponse>(
        &v1::WorkerService::Stub::async_interface::LoadModel, std::move(request), kLoadDeadline,
        [this](const absl::Status& status, const v1::LoadModelResponse& response) {
          if (!status.ok()) return events_->OnModelLoaded(link_, status);
          events_->OnModelLoaded(link_, DecodeLoadedModel(response));
        });
  }

  void StartReplica(const StartReplicaCall& call) override {
    v1::StartReplicaRequest request;
    request.set_replica_id(call.replica_id.value());
    request.set_epoch(call.epoch.value());
    request.set_block_count(call.block_count);
    request.set_lease_ms(call.lease_ms);
    Start<v1::StartReplicaRequest, v1::StartReplicaResponse>(
        &v1::WorkerService::Stub::async_interface::StartReplica, std::move(request), kStartDeadline,
        [this](const absl::Status& status, const v1::StartReplicaResponse&) {
          events_->OnReplicaStarted(link_, status);
        });
  }

  void OpenStream() override {
    auto* stream = new Stream(this);  // deleted in OnDone
    {
      absl::MutexLock lock(&mutex_);
      stream_ = stream;
      BeginCall(&stream->context);
      stub_->async()->Execute(&stream->context, stream);
      stream->Begin();
    }
  }

  void SendPlan(const StepPlan& plan) override {
    v1::ExecuteRequest request;
    wire::EncodePlan(plan, *request.mutable_plan());
    absl::MutexLock lock(&mutex_);
    if (stream_ != nullptr) stream_->Send(std::move(request));
  }

 private:
  class Stream final : public grpc::ClientBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse> {
   public:
    explicit Stream(GrpcWorkerClient* client) : client_(client) {}

    // The client's mutex is held.
    void Begin() {
      StartRead(&response_);
      StartCall();
    }

    // The client's mutex is held.
    void Send(v1::ExecuteRequest request) {
      if (closed_) return;
      unsent_.push_back(std::move(request));
      if (unsent_.size() == 1) StartWrite(&unsent_.front());
    }

    void OnWriteDone(bool ok) override {
      absl::MutexLock lock(&client_->mutex_);
      unsent_.pop_front();
      if (!ok) closed_ = true;
      if (!closed_ && !unsent_.empty()) StartWrite(&unsent_.front());
    }

    void OnReadDone(bool ok) override {
      if (!ok) {
        absl::MutexLock lock(&client_->mutex_);
        closed_ = true;
        return;
      }
      absl::StatusOr<StepResult> result = wire::DecodeResult(response_.result());
      if (result.ok()) {
        client_->events_->OnResult(client_->link_, *std::move(result));
      } else if (malformed_.ok()) {
        malformed_ = absl::InternalError(
            absl::StrCat("the worker's result is malformed: ", result.status().message()));
        context.TryCancel();
      }
      StartRead(&response_);
    }

    void OnDone(const grpc::Status& status) override {
      GrpcWorkerClient* const client = client_;
      {
        absl::MutexLock lock(&client->mutex_);
        if (client->stream_ == this) client->stream_ = nullptr;
      }
      client->events_->OnStreamEnded(client->link_,
                                     malformed_.ok() ? wire::FromGrpc(status) : malformed_);
      client->EndCall(this);
    }

    grpc::ClientContext context;

   private:
    GrpcWorkerClient* const client_;
    v1::ExecuteResponse response_;
    std::deque<v1::ExecuteRequest>
        unsent_;  // the front one is being written; at most the plans in flight
    bool closed_ = false;
    absl::Status malformed_;
  };

  template <typename Request, typename Response>
  using Method = void (v1::WorkerService::Stub::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

  template <typename Request, typename Response, typename Done>
  void Start(Method<Request, Response> method, Request request, absl::Duration deadline,
             Done done) {
    struct Call {
      grpc::ClientContext context;
      Request request;
      Response response;
    };
    auto* call = new Call;  // deleted in its callback
    call->request = std::move(request);
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    absl::MutexLock lock(&mutex_);
    BeginCall(&call->context);
    (stub_->async()->*method)(&call->context, &call->request, &call->response,
                              [this, call, done](const grpc::Status& status) {
                                done(wire::FromGrpc(status), call->response);
                                EndCall(call);
                              });
  }

  void BeginCall(grpc::ClientContext* context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    open_calls_.insert(context);
    ++live_calls_;
  }

  // Deletes the call; the last thing its callback does with this object, which may be gone
  // afterwards. The call goes before the destructor is let on: a context holds the channel, and who
  // drops a process's last channel joins gRPC's callback threads, so it must not be one of them
  // (gRPC 1.51: a use after free in the thread that joined itself).
  template <typename T>
  void EndCall(T* call) {
    {
      absl::MutexLock lock(&mutex_);
      open_calls_.erase(&call->context);
    }
    delete call;
    absl::MutexLock lock(&mutex_);
    --live_calls_;
  }

  const LinkId link_;
  WorkerEvents* const events_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  absl::Mutex mutex_;
  std::set<grpc::ClientContext*> open_calls_ ABSL_GUARDED_BY(mutex_);  // may be cancelled
  size_t live_calls_ ABSL_GUARDED_BY(mutex_) = 0;                      // not deleted yet
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

std::unique_ptr<WorkerClient> GrpcWorkerDialer::Dial(const std::string& address, LinkId link,
                                                     WorkerEvents* events) {
  return std::make_unique<GrpcWorkerClient>(address, link, events);
}

}  // namespace octavo
