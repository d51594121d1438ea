#pragma once

// How workers find the scheduler (fleet_service.proto): registrations into the loop, the fleet's
// view out.
//
// Thread-safe; must outlive its server.

#include "octavo/v1/fleet_service.grpc.pb.h"
#include "scheduler/runtime/loop.h"

namespace octavo {

class FleetService final : public v1::FleetService::CallbackService {
 public:
  // `loop` is borrowed.
  explicit FleetService(Loop* loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::RegisterWorkerResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;

 private:
  Loop* const loop_;
};

}  // namespace octavo
