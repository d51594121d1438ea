// Engine: beam search. Beams are ordinary sequences that wait for each other: one that has
// delivered its candidates sits out, as a paused one does, and may lose its blocks to who needs
// them, since it does not need its KV until it goes on. When all have delivered, the search
// (beam_search.h) chooses. A parent's first child goes on in the parent's sequence; the others are
// new sequences that share its blocks until they write (engine_fork.cc) and are started on the
// worker with their first row. A parent without children gives its blocks back.
//
// Until the first choice there is one beam, which computes the prompt and keeps the places of the
// others. Later each beam has its own place, or waits for one: a search goes on in a pool that has
// room for one beam only, one after the other.

#include <algorithm>
#include <utility>

#include "glog/logging.h"
#include "scheduler/core/engine.h"

namespace octavo {

void Engine::BeginBeams(const BeamSearchParams& params, Sequence& sequence) {
  sequence.request->beams = std::make_unique<BeamGroup>(
      BeamGroup{.search = BeamSearch(params, sequence.stop),
                .alternatives = std::vector<std::vector<TokenLogprob>>(1),
                .returned_count = params.returned,
                .first_arrival = sequence.key.arrival});
  sequence.is_beam = true;
  // The raw logits decide: all that the worker is asked for are the most likely tokens.
  sequence.sampling = {.temperature = 0,
                       .stop_token_ids = std::move(sequence.sampling.stop_token_ids),
                       .logprobs = sequence.request->beams->search.alternative_count()};
}

void Engine::Deliver(SequenceSlot slot, std::span<const TokenLogprob> alternatives) {
  Sequence& sequence = sequences_[slot];
  Request& request = *sequence.request;
  const auto rank = std::find(request.sequences.begin(), request.sequences.end(), slot);
  const size_t index = static_cast<size_t>(rank - request.sequences.begin());
  request.beams->alternatives[index].assign(alternatives.begin(), alternatives.end());
  ++request.beams->delivered_count;
  ++counters_.generated_tokens;
  sequence.delivered = true;
  if (!request.paused) Pause(slot);
}

void Engine::AdvanceBeams(Request& request, absl::Time now, Actions& actions) {
  BeamGroup& group = *request.beams;
  if (!request.first_token) request.first_token = now;
  if (request.unborn_count > 0) {
    if (sequences_[request.sequences[0]].is_running()) {
      replica_->unborn_count -= request.unborn_count;
    }
    request.unborn_count = 0;
  }
  const std::vector<BeamContinuation> continuations = group.search.Advance(group.alternatives);
  if (group.search.done()) {
    FinishBeams(request, sequences_[request.sequences[0]].stop.limit_reason, now, actions);
    return;
  }
  ContinueBeams(request, continuations);
  group.alternatives.assign(continuations.size(), {});
  group.delivered_count = 0;
  actions.push_back(BeamsAdvanced{request.id, group.search.token_count()});
}

void Engine::ContinueBeams(Request& request, std::span<const BeamContinuation> continuations) {
  const std::vector<SequenceSlot> parents = request.sequences;
  std::vector<bool> has_child(parents.size());
  for (const BeamContinuation& it : continuations) has_child[it.parent] = true;
  std::vector<bool> taken(request.sample_count);
  for (size_t i = 0; i < parents.size(); ++i) {
    if (has_child[i]) {
      taken[sequences_[parents[i]].index] = true;
    } else {
      Withdraw(parents[i]);
      sequences_.Remove(parents[i]);
    }
  }
  // All forks before any token: a parent is what they begin with.
  std::vector<SequenceSlot> beams;
  std::vector<bool> has_gone_on(parents.size());
  for (const BeamContinuation& it : continuations) {
    if (!has_gone_on[it.parent]) {
      has_gone_on[it.parent] = true;
      beams.push_back(parents[it.parent]);
      continue;
    }
    const auto free = std::find(taken.begin(), taken.end(), false);
    CHECK(free != taken.end());
    *free = true;
    beams.push_back(ForkBeam(parents[it.parent], static_cast<uint32_t>(free - taken.begin())));
  }
  for (size_t i = 0; i < beams.size(); ++i) {
    Sequence& beam = sequences_[beams[i]];
    beam.tokens.push_back(continuations[i].token);
    if (std::exchange(beam.delivered, false) && !request.paused) Resume(beams[i]);
  }
  request.sequences = std::move(beams);
}

SequenceSlot Engine::ForkBeam(SequenceSlot parent_slot, uint32_t index) {
  Sequence& parent = sequences_[parent_slot];
  Request& request = *parent.request;
  last_sequence_id_ = SequenceId(last_sequence_id_.value() + 1);
  Sequence child;
  child.id = last_sequence_id_;
  child.key = {parent.key.priority, request.beams->first_arrival + index};
  child.request = &request;
  child.index = index;
  child.seed = parent.seed;
  child.sampling = parent.sampling;
  child.stop = parent.stop;
  child.is_beam = true;
  child.delivered = true;  // it goes on with the others
  child.prompt_token_count = parent.prompt_token_count;
  child.tokens = parent.tokens;
  ++paused_count_;
  const bool has_place =
      replica_ && replica_->running.size() + replica_->unborn_count < options_.max_sequences;
  if (!parent.is_running() || !has_place) {
    child.state = SequenceState::kPausedWaiting;
    ++waiting_count_;
    waiting_tokens_ += child.prompt_token_count;
    return sequences_.Add(std::move(child));
  }
  child.state = SequenceState::kPausedRunning;
  child.written = parent.written;
  child.planned = parent.planned;
  child.inherited = parent.planned;
  replica_->ledger.Fork(parent.table, replica_->ledger.layout().BlocksFor(parent.planned),
                        child.table);
  child.shares_tail = parent.shares_tail = true;
  const SequenceSlot slot = sequences_.Add(std::move(child));
  AddToRunning(slot);
  return slot;
}

void Engine::FinishBeams(Request& request, FinishReason limit_reason, absl::Time now,
                         Actions& actions) {
  Ending ending{.reason = limit_reason};
  // Where the search ended before it had so many, the others are empty, as samples are that were
  // never born.
  std::vector<BeamHypothesis> best = request.beams->search.Best();
  best.resize(request.beams->returned_count);
  for (uint32_t rank = 0; rank < best.size(); ++rank) {
    BeamHypothesis& it = best[rank];
    ending.reason = it.stop_token ? FinishReason::kStopToken : limit_reason;
    const auto count = static_cast<uint32_t>(it.tokens.size());
    request.completion_token_count += count;
    actions.push_back(SequenceFinished{.request_id = request.id,
                                       .sequence_index = rank,
                                       .reason = ending.reason,
                                       .stop_token = it.stop_token,
                                       .completion_token_count = count,
                                       .tokens = std::move(it.tokens),
                                       .score = static_cast<float>(it.score)});
  }
  FinishRequest(request, std::move(ending), now, actions);
}

}  // namespace octavo
