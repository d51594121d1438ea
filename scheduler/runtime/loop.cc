#include "scheduler/runtime/loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "glog/logging.h"

namespace octavo {
namespace {

// The loop takes in all that waits each turn, so a full inbox is soon empty again.
constexpr absl::Duration kFullInboxDelay = absl::Milliseconds(100);

absl::Status NoReplica(absl::string_view message) {
  return WithReason(absl::UnavailableError(message), "NO_REPLICA");
}

}  // namespace

Loop::Loop(LoopOptions options, const Tokenizer* tokenizer, const Clock* clock,
           WorkerDialer* dialer, LoopObserver* observer)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      clock_(clock),
      observer_(observer),
      inbox_(options_.inbox_capacity),
      engine_(options_.engine),
      now_(clock->Now()),
      replica_down_since_(now_),
      fleet_(options_.fleet, dialer, this) {}

Loop::~Loop() { inbox_.Close(); }

// ---- Any thread ----

absl::Status Loop::Submit(Submission submission) {
  return inbox_.TryPush(Message(std::move(submission))) ? absl::OkStatus() : InboxRefusal();
}

void Loop::Cancel(RequestId request_id, CancelReason reason) {
  inbox_.Push(Cancelled{request_id, reason});
}
void Loop::ReaderCaughtUp(RequestId request_id) { inbox_.Push(CaughtUp{request_id}); }

absl::Status Loop::Call(std::function<void()> function) {
  return inbox_.TryPush(Message(std::move(function))) ? absl::OkStatus() : InboxRefusal();
}

absl::Status Loop::InboxRefusal() const {
  if (inbox_.closed()) {
    return WithReason(absl::UnavailableError("the scheduler shuts down"), "SHUTTING_DOWN");
  }
  return WithRetryDelay(
      WithReason(absl::ResourceExhaustedError(
                     "the scheduler has too many calls to take in; come back later"),
                 "TOO_MANY_CALLS", {{"limit", options_.inbox_capacity}}),
      kFullInboxDelay);
}

void Loop::BeginDrain(std::function<void()> when_idle) {
  inbox_.Push(std::function<void()>([this, when_idle = std::move(when_idle)] {
    SetDraining(true);
    when_idle_.push_back(when_idle);
  }));
}

void Loop::Stop() { inbox_.Close(); }

void Loop::OnModelLoaded(LinkId link, absl::StatusOr<LoadedModel> loaded) {
  inbox_.Push(ModelLoaded{link, std::move(loaded)});
}
void Loop::OnReplicaStarted(LinkId link, absl::Status status) {
  inbox_.Push(ReplicaStarted{link, std::move(status)});
}
void Loop::OnResult(LinkId link, StepResult result) {
  inbox_.Push(ResultArrived{link, std::move(result)});
}
void Loop::OnStreamEnded(LinkId link, absl::Status status) {
  inbox_.Push(StreamEnded{link, std::move(status)});
}

// ---- The loop's thread ----

void Loop::Run() {
  while (Turn(absl::InfiniteFuture())) {
  }
}

bool Loop::Turn(absl::Time wait_until) {
  std::vector<Message> messages = inbox_.TakeAll(std::min(wait_until, NextTimer()));
  now_ = std::max(now_, clock_->Now());
  if (messages.empty() && inbox_.closed()) return false;
  for (Message& message : messages) {
    std::visit([this](auto& value) { Receive(std::move(value)); }, message);
  }
  CheckTimers();
  while (engine_.PlanNext(now_, actions_)) {
  }
  CarryOut();
  kv_publisher_.Publish();
  ReportLevels();
  if (engine_.idle() && sessions_.empty()) {
    for (const auto& function : std::exchange(when_idle_, {})) function();
  }
  return true;
}

void Loop::Receive(Submission submission) {
  const RequestId id = submission.request.request_id;
  const std::shared_ptr<TokenSink> sink = submission.sink;
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(id, std::move(submission.session), tokenizer_, sink, now_);
  if (!session.ok()) {
    StreamEnd end;
    end.status = session.status();
    sink->End(std::move(end));
    return;
  }
  if (draining_) {
    (*session)->Refuse(WithReason(
        absl::UnavailableError("the scheduler drains and takes no new requests; use another one"),
        "DRAINING"));
  } else if (replica_down_since_ && now_ - *replica_down_since_ >= options_.replica_grace) {
    (*session)->Refuse(NoReplica(absl::StrCat("no replica is ready: ", fleet_.detail())));
  } else {
    sessions_.emplace(id, *std::move(session));
    Handle(std::move(submission.request));
    return;
  }
  observer_->OnRequestEnded({.outcome = "refused"});
}

void Loop::Receive(const Cancelled& cancelled) {
  if (!sessions_.contains(cancelled.request_id)) return;  // its end crossed with the cancellation
  Handle(CancelRequest{.request_id = cancelled.request_id, .reason = cancelled.reason});
}

void Loop::Receive(const CaughtUp& caught_up) {
  const auto session = sessions_.find(caught_up.request_id);
  if (session == sessions_.end() || !session->second->paused_since) return;
  session->second->paused_since.reset();
  Handle(ResumeRequest{caught_up.request_id});
}

void Loop::Receive(const ModelLoaded& message) {
  std::vector<Event> events;
  fleet_.OnModelLoaded(message.link, message.loaded, now_, events);
  HandleAll(std::move(events));
}

void Loop::Receive(const ReplicaStarted& message) {
  std::vector<Event> events;
  fleet_.OnReplicaStarted(message.link, message.status, now_, events);
  HandleAll(std::move(events));
}

void Loop::Receive(ResultArrived message) {
  std::vector<Event> events;
  const auto sample = fleet_.OnResult(message.link, std::move(message.result), now_, events);
  if (sample) observer_->OnStep(*sample);
  HandleAll(std::move(events));
}

void Loop::Receive(const StreamEnded& message) {
  std::vector<Event> events;
  fleet_.OnStreamEnded(message.link, message.status, now_, events);
  HandleAll(std::move(events));
}

void Loop::HandleAll(std::vector<Event> events) {
  for (Event& event : events) Handle(std::move(event));
}

void Loop::Handle(Event event) {
  engine_.Handle(std::move(event), now_, actions_);
  CarryOut();
}

void Loop::EndWith(Session& session, const absl::Status& status) {
  session.override_status = status;
  Handle(CancelRequest{.request_id = session.request_id(), .reason = CancelReason::kAborted});
}

void Loop::EndAll(const absl::Status& status) {
  std::vector<RequestId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const RequestId id : ids) {
    const auto session = sessions_.find(id);
    if (session != sessions_.end()) EndWith(*session->second, status);
  }
}

void Loop::CheckTimers() {
  std::vector<Event> events;
  fleet_.CheckDeadline(now_, events);
  HandleAll(std::move(events));
  if (fleet_.ready()) {
    replica_down_since_.reset();
  } else if (!replica_down_since_) {
    replica_down_since_ = now_;
  } else if (now_ - *replica_down_since_ >= options_.replica_grace && !sessions_.empty()) {
    EndAll(NoReplica(absl::StrCat("no replica was ready for ",
                                  absl::FormatDuration(options_.replica_grace), ": ",
                                  fleet_.detail())));
  }
  std::vector<RequestId> stalled;
  for (const auto& [id, session] : sessions_) {
    if (session->paused_since && now_ - *session->paused_since >= options_.slow_reader_timeout)
      stalled.push_back(id);
  }
  for (const RequestId id : stalled) {
    const std::string timeout = absl::FormatDuration(options_.slow_reader_timeout);
    EndWith(*sessions_.at(id), WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                              "the client reads too slowly: it was behind for ",
                                              timeout, " (--slow_reader_timeout)")),
                                          "SLOW_READER", {{"slow_reader_timeout", timeout}}));
  }
  if (engine_.NextDeadline() <= now_) Handle(Tick{});
}

absl::Time Loop::NextTimer() const {
  absl::Time next = std::min(engine_.NextDeadline(), fleet_.NextDeadline());
  if (replica_down_since_ && !sessions_.empty())
    next = std::min(next, *replica_down_since_ + options_.replica_grace);
  for (const auto& [id, session] : sessions_) {
    if (session->paused_since)
      next = std::min(next, *session->paused_since + options_.slow_reader_timeout);
  }
  return next;
}

absl::StatusOr<WorkerState> Loop::RegisterWorker(const WorkerDescription& worker) {
  std::vector<Event> events;
  absl::StatusOr<WorkerState> state = fleet_.Register(worker, draining_, now_, events);
  HandleAll(std::move(events));
  return state;
}

uint32_t Loop::AbortByName(const std::vector<std::string>& names) {
  uint32_t count = 0;
  for (const std::string& name : names) {
    const auto record = engine_.FindRequest(absl::string_view(name));
    if (!record || record->state == SequenceState::kEnded ||
        !sessions_.contains(record->request_id))
      continue;
    ++count;
    EndWith(*sessions_.at(record->request_id),
            WithReason(absl::CancelledError(absl::StrCat("request ", name, " was aborted")),
                       "ABORTED", {{"request_id", name}}));
  }
  return count;
}

absl::StatusOr<uint32_t> Loop::ResetPrefixes() {
  const uint32_t cached = engine_.State().cached_blocks;
  reset_status_.reset();
  Handle(ResetPrefixCache{});
  CHECK(reset_status_.has_value()) << "the engine did not answer a prefix reset";
  if (!reset_status_->ok()) return *reset_status_;
  return cached;
}

void Loop::SetDraining(bool draining) {
  if (draining != draining_)
    LOG(INFO) << (draining ? "draining: new requests are refused" : "taking requests again");
  draining_ = draining;
}

const Session* Loop::FindSession(RequestId request_id) const {
  const auto found = sessions_.find(request_id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void Loop::ReportLevels() {
  const SchedulerState state = engine_.State();
  LevelSample levels;
  levels.running = state.running_sequences;
  levels.waiting = state.waiting_requests;
  levels.paused = state.paused_sequences;
  levels.block_size = state.block_size;
  levels.block_count = state.capacity_blocks;
  levels.free_blocks = state.free_blocks;
  levels.cached_blocks = state.cached_blocks;
  levels.held_blocks = state.held_blocks;
  levels.waste = state.waste;
  levels.replica_ready = fleet_.ready();
  levels.step_lag = state.steps_in_flight;
  levels.prefix_query_tokens = state.counters.prefix_queried_tokens;
  levels.prefix_hit_tokens = state.counters.prefix_hit_tokens;
  levels.prefix_in_flight_hit_tokens = state.counters.prefix_in_flight_hit_tokens;
  levels.preemptions = state.counters.preemptions;
  levels.evicted_blocks = state.counters.evicted_blocks;
  levels.ignored_results = state.counters.duplicate_results + state.counters.stale_results +
                           state.counters.unknown_results;
  levels.resyncs = state.counters.resyncs;
  levels.replica_losses = state.counters.replica_losses;
  observer_->OnLevels(levels);
  const bool ready = fleet_.ready() && !draining_;
  if (ready != ready_) observer_->OnReadiness(ready);
  ready_ = ready;
}

}  // namespace octavo
