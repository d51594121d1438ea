#pragma once

// Keeps telling the scheduler that this worker is there (FleetService.RegisterWorker), at start and
// at every heartbeat, so that the two may start in any order and a scheduler that restarts finds
// its workers.
//
// Thread rule: construct, then leave alone; it has a thread of its own until it is destroyed.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "octavo/v1/fleet_service.grpc.pb.h"

namespace octavo {

class Registration {
 public:
  // `scheduler` is a gRPC target. `on_answer` is called after each attempt: true when the scheduler
  // accepted it.
  Registration(std::string scheduler, v1::WorkerDescription worker,
               std::function<void(bool accepted)> on_answer);
  ~Registration();

 private:
  void Run();
  // False when told to stop.
  bool Wait(absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string scheduler_;
  const v1::WorkerDescription worker_;
  const std::function<void(bool)> on_answer_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace octavo
