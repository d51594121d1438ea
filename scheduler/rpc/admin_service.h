#pragma once

// Looking inside the scheduler (admin_service.proto). Every call runs on the loop's thread between
// two turns, on copies the engine gives out.
//
// Thread-safe; must outlive its server.

#include <string>

#include "octavo/v1/admin_service.grpc.pb.h"
#include "scheduler/rpc/kv_event_stream.h"
#include "scheduler/runtime/loop.h"
#include "scheduler/runtime/served_model.h"

namespace octavo {

struct AdminServiceOptions {
  std::map<std::string, std::string> limits;  // limits in force, by flag name
  bool show_tokens = false;                   // --log_prompts
  bool kv_event_tokens = false;               // --kv_event_tokens
  size_t max_unsent_event_bytes = kMaxUnsentEventBytes;
  absl::Time started;
};

class AdminService final : public v1::AdminService::CallbackService {
 public:
  // `model`, `loop` and `clock` are borrowed.
  AdminService(AdminServiceOptions options, const ServedModel* model, Loop* loop,
               const Clock* clock);

  grpc::ServerUnaryReactor* GetSchedulerState(grpc::CallbackServerContext* context,
                                              const v1::GetSchedulerStateRequest* request,
                                              v1::GetSchedulerStateResponse* response) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context,
                                         const v1::ListRequestsRequest* request,
                                         v1::ListRequestsResponse* response) override;
  grpc::ServerUnaryReactor* GetRequest(grpc::CallbackServerContext* context,
                                       const v1::GetRequestRequest* request,
                                       v1::GetRequestResponse* response) override;
  grpc::ServerUnaryReactor* GetBlockTable(grpc::CallbackServerContext* context,
                                          const v1::GetBlockTableRequest* request,
                                          v1::GetBlockTableResponse* response) override;
  grpc::ServerUnaryReactor* ListBlocks(grpc::CallbackServerContext* context,
                                       const v1::ListBlocksRequest* request,
                                       v1::ListBlocksResponse* response) override;
  grpc::ServerUnaryReactor* GetPoolMap(grpc::CallbackServerContext* context,
                                       const v1::GetPoolMapRequest* request,
                                       v1::GetPoolMapResponse* response) override;
  grpc::ServerUnaryReactor* LookupPrefix(grpc::CallbackServerContext* context,
                                         const v1::LookupPrefixRequest* request,
                                         v1::LookupPrefixResponse* response) override;
  grpc::ServerUnaryReactor* GetStepTrace(grpc::CallbackServerContext* context,
                                         const v1::GetStepTraceRequest* request,
                                         v1::GetStepTraceResponse* response) override;
  grpc::ServerUnaryReactor* CheckInvariants(grpc::CallbackServerContext* context,
                                            const v1::CheckInvariantsRequest* request,
                                            v1::CheckInvariantsResponse* response) override;
  grpc::ServerUnaryReactor* ResetPrefixCache(grpc::CallbackServerContext* context,
                                             const v1::ResetPrefixCacheRequest* request,
                                             v1::ResetPrefixCacheResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchKvEventsResponse>* WatchKvEvents(
      grpc::CallbackServerContext* context, const v1::WatchKvEventsRequest* request) override;

 private:
  const AdminServiceOptions options_;
  const ServedModel* const model_;
  Loop* const loop_;
  const Clock* const clock_;
};

}  // namespace octavo
