#pragma once

// The thread that owns the engine, the sessions and the fleet. In, from any thread through one
// inbox: requests, cancellations, reports of workers, calls of the services. Out: plans to the
// worker, chunks to the clients, samples to the metrics. Each turn takes all that has come, lets
// the engine plan as many steps as may be in flight, and carries out what it asks for.
//
// Thread rule: methods of the first group are thread-safe; those of the second run on the loop's
// thread, which is where Call runs its functions. Invariants: (1) every submission that is accepted
// sees exactly one End on its sink. (2) A request whose reader is behind is paused in the engine,
// and resumed or ended. (3) Nothing is planned while the loop holds undelivered tokens of an
// earlier step.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/inbox.h"
#include "common/model/tokenizer.h"
#include "scheduler/core/engine.h"
#include "scheduler/runtime/fleet.h"
#include "scheduler/runtime/kv_publisher.h"
#include "scheduler/runtime/ports.h"
#include "scheduler/runtime/session.h"

namespace octavo {

struct LoopOptions {
  EngineOptions engine;
  FleetOptions fleet;
  // Requests wait this long for a replica that is not there; then they and new ones end with
  // UNAVAILABLE.
  absl::Duration replica_grace = absl::Seconds(60);
  // A reader that stays behind this long ends with RESOURCE_EXHAUSTED.
  absl::Duration slow_reader_timeout = absl::Seconds(30);
  size_t inbox_capacity = 8192;
};

struct Submission {
  SubmitRequest request;  // request_id from NewRequestId
  SessionOptions session;
  std::shared_ptr<TokenSink> sink;
};

class Loop final : public WorkerEvents {
 public:
  // All pointers are borrowed. REQUIRES: options.engine.Validate() is OK.
  Loop(LoopOptions options, const Tokenizer* tokenizer, const Clock* clock, WorkerDialer* dialer,
       LoopObserver* observer);
  ~Loop() override;

  // ---- Any thread ----
  RequestId NewRequestId() { return RequestId(++last_request_id_); }
  // ResourceExhausted when too much waits to be taken in, Unavailable after Stop; then the sink
  // sees nothing.
  absl::Status Submit(Submission submission);
  void Cancel(RequestId request_id, CancelReason reason);
  void ReaderCaughtUp(RequestId request_id);
  // Runs `function` on the loop's thread. ResourceExhausted when too much waits; Unavailable after
  // Stop.
  absl::Status Call(std::function<void()> function);
  // Refuses new requests from now on; `when_idle` runs once all accepted ones have ended.
  void BeginDrain(std::function<void()> when_idle);
  // Ends Run after the turn under way.
  void Stop();

  void OnModelLoaded(LinkId link, absl::StatusOr<LoadedModel> loaded) override;
  void OnReplicaStarted(LinkId link, absl::Status status) override;
  void OnResult(LinkId link, StepResult result) override;
  void OnStreamEnded(LinkId link, absl::Status status) override;

  // ---- The loop's thread ----
  // Turns until Stop.
  void Run();
  // One turn: waits for something to do until `wait_until` at the latest. False after Stop.
  bool Turn(absl::Time wait_until);

  absl::StatusOr<WorkerState> RegisterWorker(const WorkerDescription& worker);
  // Ends live requests by their clients' names; returns how many there were.
  uint32_t AbortByName(const std::vector<std::string>& names);
  // Ends every request with `status`.
  void EndAll(const absl::Status& status);
  KvPublisher& kv_publisher() { return kv_publisher_; }
  // How many cached blocks lost their prefix; FailedPrecondition while blocks are held.
  absl::StatusOr<uint32_t> ResetPrefixes();
  void SetDraining(bool draining);
  const Engine& engine() const { return engine_; }
  const Fleet& fleet() const { return fleet_; }
  const LoopOptions& options() const { return options_; }
  bool draining() const { return draining_; }
  // Of the turn that runs.
  absl::Time now() const { return now_; }
  size_t session_count() const { return sessions_.size(); }
  const Session* FindSession(RequestId request_id) const;

 private:
  struct Cancelled {
    RequestId request_id;
    CancelReason reason;
  };
  struct CaughtUp {
    RequestId request_id;
  };
  struct ModelLoaded {
    LinkId link;
    absl::StatusOr<LoadedModel> loaded;
  };
  struct ReplicaStarted {
    LinkId link;
    absl::Status status;
  };
  struct ResultArrived {
    LinkId link;
    StepResult result;
  };
  struct StreamEnded {
    LinkId link;
    absl::Status status;
  };
  using Message = std::variant<Submission, Cancelled, CaughtUp, ModelLoaded, ReplicaStarted,
                               ResultArrived, StreamEnded, std::function<void()>>;

  void Receive(Submission submission);
  void Receive(const Cancelled& cancelled);
  void Receive(const CaughtUp& caught_up);
  void Receive(const ModelLoaded& message);
  void Receive(const ReplicaStarted& message);
  void Receive(ResultArrived message);
  void Receive(const StreamEnded& message);
  void Receive(const std::function<void()>& function) { function(); }

  // Why the inbox took nothing in.
  absl::Status InboxRefusal() const;

  // Hands an event to the engine and carries out what follows.
  void Handle(Event event);
  void HandleAll(std::vector<Event> events);

  // loop_actions.cc: what the engine asks for.
  void CarryOut();
  void Do(const SendPlan& action);
  void Do(const RequestAdmitted& action);
  void Do(const TokensGenerated& action);
  void Do(const BeamsAdvanced& action);
  void Do(const SequenceFinished& action);
  void Do(const RequestFinished& action);
  void Do(const RequestRefused& action);
  void Do(const PrefixCacheReset& action);
  void Do(const ReplicaRejected& action);
  // Tells the metrics of `count` more tokens of the session.
  void CountTokens(Session& session, uint32_t count);
  // Writes the chunks of the sessions that got tokens, and pauses or ends what that brings to
  // light.
  void FlushTouched();
  void RemoveSession(RequestId request_id, const RequestSample& sample);

  void CheckTimers();
  absl::Time NextTimer() const;
  void EndWith(Session& session, const absl::Status& status);
  void ReportLevels();

  const LoopOptions options_;
  const Tokenizer* const tokenizer_;
  const Clock* const clock_;
  LoopObserver* const observer_;
  std::atomic<uint64_t> last_request_id_{0};
  Inbox<Message> inbox_;

  Engine engine_;
  KvPublisher kv_publisher_{&engine_};
  absl::flat_hash_map<RequestId, std::unique_ptr<Session>> sessions_;
  std::vector<Action> actions_;
  std::vector<RequestId> touched_;  // sessions with tokens to flush
  absl::Time now_;
  bool carrying_out_ = false;
  bool draining_ = false;
  bool ready_ = false;
  std::optional<absl::Time> replica_down_since_;
  std::vector<std::function<void()>> when_idle_;
  std::optional<absl::Status> reset_status_;
  // Last: its link's calls report to this object until they have ended.
  Fleet fleet_;
};

}  // namespace octavo
