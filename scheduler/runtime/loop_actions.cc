// Loop: what the engine wants done, and what becomes of the requests' sessions by it.

#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "glog/logging.h"
#include "scheduler/runtime/loop.h"

namespace octavo {

// Actions bring more about (a stop string found stops its sequence), so this runs until there are
// none left; the nested calls that Handle makes on the way leave the work to the outermost one.
void Loop::CarryOut() {
  if (carrying_out_) return;
  carrying_out_ = true;
  while (!actions_.empty() || !touched_.empty()) {
    for (Action& action : std::exchange(actions_, {})) {
      std::visit([this](auto& value) { Do(std::move(value)); }, action);
    }
    FlushTouched();
  }
  carrying_out_ = false;
}

void Loop::Do(const SendPlan& action) { fleet_.SendPlan(action.plan, now_); }

void Loop::Do(const RequestAdmitted& action) {
  Session& session = *sessions_.at(action.request_id);
  session.Admit(action.cached_token_count);
  observer_->OnAdmitted(session.usage().prompt_tokens);
}

void Loop::CountTokens(Session& session, uint32_t count) {
  if (count == 0) return;
  const bool first = session.usage().completion_tokens == count;
  observer_->OnTokens(count, first, now_ - (first ? session.submitted() : session.last_token));
  session.last_token = now_;
}

void Loop::Do(const TokensGenerated& action) {
  const std::vector<GeneratedToken>& tokens = action.tokens;
  for (size_t first = 0; first < tokens.size();) {
    size_t last = first;
    while (last < tokens.size() && tokens[last].request_id == tokens[first].request_id) ++last;
    const auto found = sessions_.find(tokens[first].request_id);
    CHECK(found != sessions_.end())
        << "tokens of request " << tokens[first].request_id << ", which has ended";
    Session& session = *found->second;
    const uint32_t before = session.usage().completion_tokens;
    for (; first < last; ++first) {
      const GeneratedToken& token = tokens[first];
      session.Take(token, std::span(action.top).subspan(token.first_top, token.outcome.top_count));
    }
    CountTokens(session, session.usage().completion_tokens - before);
    touched_.push_back(session.request_id());
  }
}

void Loop::FlushTouched() {
  for (const RequestId id : std::exchange(touched_, {})) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;  // ended with this step, and flushed then
    Session& session = *found->second;
    const bool keeps_up = session.Flush();
    for (const StoppedSequence& stopped : session.TakeStopped()) {
      Handle(StopSequence{.request_id = id,
                          .sequence_index = stopped.index,
                          .kept_token_count = stopped.kept_token_count});
    }
    if (!keeps_up && !session.complete() && !session.paused_since) {
      session.paused_since = now_;
      observer_->OnSlowReader();
      Handle(PauseRequest{id});
    }
  }
}

void Loop::Do(const BeamsAdvanced& action) {
  sessions_.at(action.request_id)->Advance(action);
  touched_.push_back(action.request_id);
}

void Loop::Do(const SequenceFinished& action) {
  Session& session = *sessions_.at(action.request_id);
  const uint32_t before = session.usage().completion_tokens;
  session.Complete(action);
  CountTokens(session, session.usage().completion_tokens - before);
  touched_.push_back(action.request_id);
}

void Loop::Do(const RequestFinished& action) {
  Session& session = *sessions_.at(action.request_id);
  RequestSample sample;
  sample.outcome = FinishReasonName(session.Finish(action));
  sample.max_tokens = session.options().max_tokens;
  if (action.admitted) {
    sample.queue_time = *action.admitted - action.submitted;
    if (action.first_token) {
      sample.prefill_time = *action.first_token - *action.admitted;
      sample.decode_time = action.finished - *action.first_token;
    }
  }
  RemoveSession(action.request_id, sample);
}

void Loop::Do(const RequestRefused& action) {
  sessions_.at(action.request_id)->Refuse(action.status);
  RemoveSession(action.request_id, {.outcome = "refused"});
}

void Loop::RemoveSession(RequestId request_id, const RequestSample& sample) {
  const auto found = sessions_.find(request_id);
  RequestSample complete = sample;
  complete.usage = found->second->usage();
  complete.total_time = now_ - found->second->submitted();
  observer_->OnRequestEnded(complete);
  sessions_.erase(found);
}

void Loop::Do(const PrefixCacheReset& action) { reset_status_ = action.status; }

void Loop::Do(const ReplicaRejected& action) {
  fleet_.DropReplica(action.epoch, action.status, now_);
}

}  // namespace octavo
