#pragma once

// One Execute call on the worker: plans come in, results go out in their order. Reading, executing
// and writing overlap; one write is in flight at a time.
//
// Thread rule: gRPC calls the reactions; End may be called by any thread. Invariant: results of
// plans that were accepted are written before the stream ends, unless its client has gone.

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "octavo/v1/worker_service.pb.h"
#include "worker/rpc/worker_host.h"

namespace octavo {

class ExecuteStream : public grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  // `on_plan` is called for each plan that arrives: the scheduler is alive.
  // The stream keeps itself alive until gRPC is done with it; others may hold it longer.
  static std::shared_ptr<ExecuteStream> Start(WorkerHost& host, std::function<void()> on_plan);

  // Reads no more; ends with `status` once accepted plans are answered. The first call counts.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ExecuteStream(WorkerHost& host, std::function<void()> on_plan)
      : host_(host), on_plan_(std::move(on_plan)) {}

  void Answer(Epoch epoch, StepNumber step, absl::StatusOr<StepResult> result)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes what waits, or finishes when nothing does and the end was called for.
  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerHost& host_;
  const std::function<void()> on_plan_;
  v1::ExecuteRequest request_;  // belongs to the read in flight

  absl::Mutex mutex_;
  std::shared_ptr<ExecuteStream> self_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::ExecuteResponse> responses_ ABSL_GUARDED_BY(mutex_);  // front: being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;  // plans the executor holds
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;  // nobody reads any more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo
