// Engine: what clients and operators ask of what runs, and the one way a request ends.

#include "scheduler/core/engine.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/status_reason.h"
#include "glog/logging.h"

namespace octavo {
namespace {

FinishReason ReasonOf(CancelReason reason) {
  switch (reason) {
    case CancelReason::kClientGone:
      return FinishReason::kCancelled;
    case CancelReason::kAborted:
      return FinishReason::kAborted;
    case CancelReason::kDeadline:
      return FinishReason::kDeadline;
  }
  return FinishReason::kCancelled;
}

absl::Status StatusOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kCancelled:
      return WithReason(absl::CancelledError("the client went away"), "CLIENT_GONE");
    case FinishReason::kAborted:
      return WithReason(absl::AbortedError("the request was aborted"), "ABORTED");
    case FinishReason::kDeadline:
      return WithReason(
          absl::DeadlineExceededError("the deadline passed before the request was finished"),
          "DEADLINE_PASSED");
    default:
      return absl::OkStatus();
  }
}

}  // namespace

Engine::Engine(EngineOptions options) : options_(options), trace_(options_.step_trace_length) {
  CHECK(options_.Validate().ok()) << options_.Validate();
}

void Engine::Handle(Event event, absl::Time now, std::vector<Action>& actions) {
  std::visit([&](auto& it) { On(std::move(it), now, actions); }, event);
  ExpireDeadlines(now, actions);
}

Request* Engine::FindLive(RequestId request_id) {
  const auto it = requests_.find(request_id);
  return it == requests_.end() ? nullptr : it->second.get();
}

void Engine::On(const CancelRequest& event, absl::Time now, Actions& actions) {
  Request* request = FindLive(event.request_id);
  if (request == nullptr) {
    ++counters_.ignored_commands;
    return;
  }
  FinishRequest(*request,
                {.reason = ReasonOf(event.reason), .status = StatusOf(ReasonOf(event.reason))}, now,
                actions);
}

void Engine::On(const StopSequence& event, absl::Time now, Actions& actions) {
  Request* request = FindLive(event.request_id);
  std::optional<SequenceSlot> slot;
  if (request != nullptr && !request->beams) {
    for (const SequenceSlot it : request->sequences) {
      if (sequences_[it].index == event.sequence_index) slot = it;
    }
  }
  // Of several samples, one without a token cannot have a stop string, and a stem must not end
  // alone before the others are born.
  if (!slot || (request->sample_count > 1 && sequences_[*slot].output_count() == 0)) {
    ++counters_.ignored_commands;
    return;
  }
  Finish(*slot, {.reason = FinishReason::kStopString, .kept_token_count = event.kept_token_count},
         now, actions);
}

void Engine::On(const PauseRequest& event, absl::Time, Actions&) {
  Request* request = FindLive(event.request_id);
  if (request == nullptr || request->paused) {
    ++counters_.ignored_commands;
    return;
  }
  request->paused = true;
  for (const SequenceSlot slot : request->sequences) {
    if (!sequences_[slot].delivered) Pause(slot);
  }
}

void Engine::Pause(SequenceSlot slot) {
  Sequence& sequence = sequences_[slot];
  ++paused_count_;
  if (sequence.is_running()) {
    Move(sequence, SequenceState::kPausedRunning);
  } else {
    queue_.Remove(sequence.key);
    Move(sequence, SequenceState::kPausedWaiting);
  }
}

void Engine::On(const ResumeRequest& event, absl::Time, Actions&) {
  Request* request = FindLive(event.request_id);
  if (request == nullptr || !request->paused) {
    ++counters_.ignored_commands;
    return;
  }
  request->paused = false;
  for (const SequenceSlot slot : request->sequences) {
    if (!sequences_[slot].delivered) Resume(slot);
  }
}

void Engine::Resume(SequenceSlot slot) {
  Sequence& sequence = sequences_[slot];
  --paused_count_;
  if (sequence.is_running()) {
    Move(sequence, SequenceState::kRunning);
  } else {
    Move(sequence, SequenceState::kWaiting);
    queue_.Push(sequence.key, slot);
  }
}

void Engine::On(const DrainStarted&, absl::Time, Actions&) { draining_ = true; }

void Engine::On(const ResetPrefixCache& event, absl::Time, Actions& actions) {
  actions.push_back(
      PrefixCacheReset{event.tag, replica_ ? replica_->ledger.ResetPrefixes() : absl::OkStatus()});
}

void Engine::On(const Tick&, absl::Time, Actions&) {}

void Engine::ExpireDeadlines(absl::Time now, Actions& actions) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    FinishRequest(*requests_.at(deadlines_.begin()->second),
                  {.reason = FinishReason::kDeadline, .status = StatusOf(FinishReason::kDeadline)},
                  now, actions);
  }
}

void Engine::Withdraw(SequenceSlot slot) {
  Sequence& sequence = sequences_[slot];
  paused_count_ -= sequence.is_paused();
  if (sequence.is_running()) {
    Vacate(slot);
  } else {
    if (sequence.state == SequenceState::kWaiting) queue_.Remove(sequence.key);
    --waiting_count_;
    waiting_tokens_ -= sequence.prompt_token_count;
  }
  Move(sequence, SequenceState::kEnded);
  std::erase(sequence.request->sequences, slot);
}

void Engine::EndSequence(SequenceSlot slot, const Ending& ending) {
  Sequence& sequence = sequences_[slot];
  Request& request = *sequence.request;
  SequenceRecord record = MakeSequenceRecord(sequence);  // with the blocks it held to the end
  record.state = SequenceState::kEnded;
  record.finish_reason = ending.reason;
  Withdraw(slot);
  // Of a beam search its hypotheses are counted, or, if it has none, how far its beams came.
  if (!request.beams) {
    request.completion_token_count += ending.kept_token_count.value_or(sequence.output_count());
  }
  request.ended.push_back(record);
  sequences_.Remove(slot);
}

void Engine::Finish(SequenceSlot slot, Ending ending, absl::Time now, Actions& actions) {
  Sequence& sequence = sequences_[slot];
  Request& request = *sequence.request;
  if (ending.status.ok() && request.beams) {
    request.beams->search.Stop();
    FinishBeams(request, ending.reason, now, actions);
    return;
  }
  if (ending.status.ok()) {
    SequenceFinished finished{
        .request_id = request.id,
        .sequence_index = sequence.index,
        .reason = ending.reason,
        .stop_token = ending.stop_token,
        .completion_token_count = ending.kept_token_count.value_or(sequence.output_count())};
    actions.push_back(finished);
    EndSequence(slot, ending);
    // A stem that ends before its prompt is computed takes its siblings with it.
    finished.completion_token_count = 0;
    for (uint32_t index = 1; index <= request.unborn_count; ++index) {
      finished.sequence_index = index;
      actions.push_back(finished);
    }
    if (!request.sequences.empty()) return;
  }
  FinishRequest(request, std::move(ending), now, actions);
}

void Engine::FinishRequest(Request& request, Ending ending, absl::Time now, Actions& actions) {
  if (request.beams && !ending.status.ok()) {
    request.completion_token_count = request.beams->search.token_count();
  }
  const auto left = request.sequences;
  for (const SequenceSlot slot : left) EndSequence(slot, ending);
  ++counters_.requests_finished[static_cast<size_t>(ending.reason)];
  if (waiting_count_ > 0) drain_rate_.OnRequestEnded(now, request.prompt_token_count);

  RequestRecord record = MakeRecord(request);
  record.finish_reason = ending.reason;
  record.finished = now;
  ended_.push_back(std::move(record));
  if (ended_.size() > options_.ended_request_count) ended_.pop_front();

  actions.push_back(RequestFinished{
      .request_id = request.id,
      .reason = ending.reason,
      .status = std::move(ending.status),
      .prompt_token_count = request.prompt_token_count,
      .completion_token_count = request.completion_token_count,
      .cached_token_count = request.cached_token_count,
      .preemption_count = request.preemption_count,
      .submitted = request.submitted,
      .admitted = request.admitted,
      .first_token = request.first_token,
      .finished = now,
  });
  if (!request.client_request_id.empty()) request_of_client_id_.erase(request.client_request_id);
  if (request.deadline != absl::InfiniteFuture()) deadlines_.erase({request.deadline, request.id});
  requests_.erase(request.id);
}

}  // namespace octavo
