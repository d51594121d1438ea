#pragma once

// The server's end of one WatchKvEvents call: events of the loop in, messages to the watcher out.
//
// Thread rule: KvEventSink's methods run on the loop's thread, the reactor's on gRPC's; the state
// between them is guarded. Invariants: (1) one write in flight, of at most kMaxEventsPerMessage
// events of one epoch. (2) Sequence numbers rise by one from 0. (3) What is unsent is at most the
// snapshot and `max_unsent_bytes` more; above it Write says so and the loop ends the stream. (4)
// The object lives until gRPC and the loop are both done with it.

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "octavo/v1/admin_service.pb.h"
#include "scheduler/runtime/ports.h"

namespace octavo {

constexpr size_t kMaxEventsPerMessage = 256;
constexpr size_t kMaxUnsentEventBytes = size_t{16} << 20;

struct KvEventStreamOptions {
  bool include_tokens = false;
  uint32_t block_size = 0;
  size_t max_unsent_bytes = kMaxUnsentEventBytes;  // beside the snapshot
};

class KvEventStream final : public grpc::ServerWriteReactor<v1::WatchKvEventsResponse>,
                            public KvEventSink {
 public:
  static std::shared_ptr<KvEventStream> Create(KvEventStreamOptions options);

  bool Write(std::shared_ptr<const std::vector<KvEvent>> events) override;
  void End(absl::Status status) override;
  bool gone() const override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit KvEventStream(KvEventStreamOptions options) : options_(options) {}

  // Starts the next write, or finishes when the end is known.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves events from the front of `unsent_` into the message.
  void FillMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const KvEventStreamOptions options_;
  std::shared_ptr<KvEventStream> self_;  // gRPC's share

  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<const std::vector<KvEvent>>> unsent_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;                    // of the front's events
  size_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;            // of unsent_
  std::optional<size_t> limit_bytes_ ABSL_GUARDED_BY(mutex_);  // known with the snapshot
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::WatchKvEventsResponse message_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;  // the watcher
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo
