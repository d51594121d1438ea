#pragma once

// WorkerClient over gRPC: a channel of its own to one worker, LoadModel and StartReplica as
// asynchronous calls, plans and results on one Execute stream. In: calls of the loop. Out:
// WorkerEvents, from gRPC's threads.
//
// Thread rule: called by the loop; the reactors' state is guarded by the client's mutex.
// Invariants: (1) one write in flight (a reply can arrive before OnWriteDone of the write that
// caused it; a second StartWrite aborts the process). (2) The destructor returns after the last
// callback. (3) OnStreamEnded follows the stream's last OnResult.

#include <memory>
#include <string>

#include "scheduler/runtime/ports.h"

namespace octavo {

class GrpcWorkerDialer final : public WorkerDialer {
 public:
  std::unique_ptr<WorkerClient> Dial(const std::string& address, LinkId link,
                                     WorkerEvents* events) override;
};

}  // namespace octavo
