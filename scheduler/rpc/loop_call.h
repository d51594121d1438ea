#pragma once

// A unary call answered on the loop's thread.

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "scheduler/rpc/token_stream.h"
#include "scheduler/runtime/loop.h"

namespace octavo {

// Runs `answer` on the loop's thread; its status ends the call. When the loop takes nothing in,
// that is the answer.
inline grpc::ServerUnaryReactor* AnswerOnLoop(grpc::CallbackServerContext* context, Loop* loop,
                                              std::function<absl::Status()> answer) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status accepted = loop->Call(
      [reactor, answer = std::move(answer)] { reactor->Finish(ClientStatus(answer())); });
  if (!accepted.ok()) reactor->Finish(ClientStatus(accepted));
  return reactor;
}

// Answers at once.
inline grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* context,
                                           const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ClientStatus(status));
  return reactor;
}

}  // namespace octavo
