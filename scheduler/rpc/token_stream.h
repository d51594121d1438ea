#pragma once

// The server's end of one Generate call: chunks of the loop in, messages to the client out. Initial
// metadata goes out on admission, chunks one write at a time (neighbours of one index that gather
// meanwhile are merged), trailers with the end.
//
// Thread rule: TokenSink's methods run on the loop's thread, the reactor's on gRPC's; the state
// between them is guarded. Invariants: (1) one write in flight. (2) Finish is called once, after
// the last write. (3) At most kMaxUnsentTokens plus what two steps and an echo bring are unsent:
// above it Write says so and the loop pauses the request until all has been sent. (4) The object
// lives until gRPC and the loop are both done with it.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "octavo/v1/generation_service.pb.h"
#include "scheduler/runtime/loop.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

constexpr size_t kMaxUnsentTokens = 256;
constexpr size_t kMaxTokensPerMessage = 1024;

// What the stream says in every message.
struct StreamLabels {
  std::string client_request_id;
  std::optional<uint64_t>
      seed;               // of the request; sample i is told its own. Absent: nothing is drawn
  bool log_text = false;  // --log_prompts
};

class TokenStream final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                          public TokenSink,
                          public std::enable_shared_from_this<TokenStream> {
 public:
  // `context` and `loop` outlive the call.
  static std::shared_ptr<TokenStream> Create(grpc::CallbackServerContext* context, Loop* loop,
                                             RequestId request_id, StreamLabels labels);

  void Admit() override;
  bool Write(StreamChunk chunk) override;
  void End(StreamEnd end) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  TokenStream(grpc::CallbackServerContext* context, Loop* loop, RequestId request_id,
              StreamLabels labels);

  // Starts the next write, or finishes when all is sent and the end is known.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(StreamChunk chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The message that carries the chunk.
  void FillMessage(StreamChunk chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;
  Loop* const loop_;
  const RequestId request_id_;
  const StreamLabels labels_;
  std::shared_ptr<TokenStream> self_;  // gRPC's share

  absl::Mutex mutex_;
  std::deque<StreamChunk> unsent_ ABSL_GUARDED_BY(mutex_);
  size_t unsent_tokens_ ABSL_GUARDED_BY(mutex_) = 0;  // of unsent_ and of the message under way
  size_t writing_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::GenerateResponse message_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool behind_ ABSL_GUARDED_BY(mutex_) = false;  // the loop was told to wait
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;    // the client
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<StreamEnd> end_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::string> logged_texts_ ABSL_GUARDED_BY(mutex_);  // by index
};

// The status a client sees: ErrorInfo with everything (the code's name where no room gave a
// reason), RetryInfo with what is worth trying again: UNAVAILABLE, and what came with a delay.
grpc::Status ClientStatus(absl::Status status);

}  // namespace octavo
