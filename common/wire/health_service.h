#pragma once

// grpc.health.v1.Health with statuses of our own. In: SetServing by whoever knows. Out: Check and
// Watch.
//
// gRPC's built-in service is not used: it carries no descriptor, so grpcurl cannot describe or call
// it by reflection, and it knows no names of our choosing. Names here: "" (the process as a whole),
// "liveness" (restart me when this is not SERVING), "readiness" (send me traffic while this is
// SERVING), and each octavo.v1 service.
//
// Thread-safe. Must outlive the server that serves it.
// Invariants: (1) every watcher learns the status at its start and each later one, except those
// overtaken while a write is under way. (2) A watch has one write in flight at most (toolchain: a
// second aborts the process).

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace octavo::wire {

constexpr char kLiveness[] = "liveness";
constexpr char kReadiness[] = "readiness";
constexpr size_t kMaxHealthWatches = 1024;

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Knows "", liveness, readiness and `services`, all NOT_SERVING but liveness.
  explicit HealthService(const std::vector<std::string>& services);
  ~HealthService() override;

  // REQUIRES: `service` is one of those known.
  void SetServing(const std::string& service, bool serving) ABSL_LOCKS_EXCLUDED(mutex_);
  // All but liveness at once.
  void SetAllServing(bool serving) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends all watches with UNAVAILABLE and refuses new ones, so that a server can shut down without
  // waiting for them.
  void EndWatches() ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;

  grpc::health::v1::HealthCheckResponse::ServingStatus StatusOf(const std::string& service) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyWatchers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::wire
