#pragma once

// WorkerService (proto/octavo/v1/worker_service.proto) over a WorkerHost. Set-up calls run one
// after the other on a thread of this service, since they take seconds and gRPC's own threads are
// few.
//
// Thread rule: thread-safe. Destroy after the server has shut down.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/inbox.h"
#include "octavo/v1/worker_service.grpc.pb.h"
#include "worker/rpc/execute_stream.h"
#include "worker/rpc/worker_host.h"

namespace octavo {

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  // `host` is borrowed. `on_plan` is called for each plan that arrives.
  WorkerServiceImpl(WorkerHost& host, std::string instance_id, std::function<void()> on_plan);
  ~WorkerServiceImpl() override;

  grpc::ServerUnaryReactor* LoadModel(grpc::CallbackServerContext* context,
                                      const v1::LoadModelRequest* request,
                                      v1::LoadModelResponse* response) override;
  grpc::ServerUnaryReactor* StartReplica(grpc::CallbackServerContext* context,
                                         const v1::StartReplicaRequest* request,
                                         v1::StartReplicaResponse* response) override;
  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetWorkerState(grpc::CallbackServerContext* context,
                                           const v1::GetWorkerStateRequest* request,
                                           v1::GetWorkerStateResponse* response) override;

  // Ends the Execute stream there is, if any.
  void EndStream(const absl::Status& status) ABSL_LOCKS_EXCLUDED(stream_mutex_);

  // The lease the scheduler asked for, in milliseconds; 0 before the first StartReplica.
  uint32_t lease_ms() const { return lease_ms_.load(); }

 private:
  grpc::ServerUnaryReactor* RunSetup(grpc::CallbackServerContext* context,
                                     std::function<absl::Status()> call);

  WorkerHost& host_;
  const std::string instance_id_;
  const std::function<void()> on_plan_;
  std::atomic<uint32_t> lease_ms_ = 0;
  absl::Mutex stream_mutex_;
  std::weak_ptr<ExecuteStream> stream_ ABSL_GUARDED_BY(stream_mutex_);
  Inbox<std::function<void()>> setup_calls_;
  std::thread setup_thread_;
};

}  // namespace octavo
