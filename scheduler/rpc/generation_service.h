#pragma once

// What clients call (generation_service.proto). Validates and tokenises on gRPC's threads, hands
// requests to the loop, and streams what it sends back (token_stream.h).
//
// Thread-safe; must outlive its server.

#include <string>

#include "octavo/v1/generation_service.grpc.pb.h"
#include "scheduler/rpc/validation.h"
#include "scheduler/runtime/loop.h"
#include "scheduler/runtime/served_model.h"

namespace octavo {

struct GenerationServiceOptions {
  BorderLimits limits;
  bool log_prompts = false;
};

class GenerationService final : public v1::GenerationService::CallbackService {
 public:
  // `model` and `loop` are borrowed.
  GenerationService(GenerationServiceOptions options, const ServedModel* model, Loop* loop);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;

 private:
  const GenerationServiceOptions options_;
  const ServedModel* const model_;
  Loop* const loop_;
};

}  // namespace octavo
