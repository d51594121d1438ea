// Engine: what replicas tell. A result is applied once, in the order of the steps, and whole;
// everything else that may arrive over a network (again, late, early, of another epoch) is
// recognised and counted.

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "glog/logging.h"
#include "scheduler/core/engine.h"
#include "scheduler/core/result_check.h"

namespace octavo {
namespace {

absl::Status LogitsNotFinite(uint32_t position) {
  return WithReason(absl::InternalError(absl::StrCat(
                        "the model gave logits that are not finite at position ", position)),
                    "LOGITS_NOT_FINITE", {{"position", position}});
}

}  // namespace

void Engine::On(StepCompleted event, absl::Time now, Actions& actions) {
  StepResult& result = event.result;
  if (!replica_ || result.replica_id != replica_->id || result.epoch != replica_->epoch) {
    ++counters_.stale_results;
    return;
  }
  Replica& replica = *replica_;
  if (result.step > replica.last_planned) {
    ++counters_.unknown_results;
    return;
  }
  if (result.step <= replica.last_settled) {
    const bool rolled_back =
        result.step >= replica.rolled_back_from && result.step <= replica.rolled_back_through;
    ++(rolled_back ? counters_.stale_results : counters_.duplicate_results);
    return;
  }
  const size_t index = result.step.value() - replica.last_settled.value() - 1;
  StepInFlight& flight = replica.in_flight[index];
  if (flight.result.has_value()) {
    ++counters_.duplicate_results;
    return;
  }
  if (absl::Status status = CheckResult(flight, result, options_.vocab_size); !status.ok()) {
    Reject(status, now, actions);
    return;
  }
  if (index > 0) ++counters_.reordered_results;
  flight.result = std::move(result);
  while (!replica.in_flight.empty() && replica.in_flight.front().result.has_value()) {
    Settle(*std::move(replica.in_flight.front().result), now, actions);
  }
}

void Engine::Settle(StepResult result, absl::Time now, Actions& actions) {
  Replica& replica = *replica_;
  StepInFlight flight = std::move(replica.in_flight.front());
  replica.in_flight.pop_front();
  replica.last_settled = flight.step;
  replica.consecutive_resyncs = 0;
  ++counters_.steps_completed;
  if (!result.failed.empty()) UndoFailedRows(result, flight);
  replica.ledger.CompleteThrough(flight.step);

  TokensGenerated generated;
  generated.tokens.reserve(result.sampled.size());
  std::vector<std::pair<const RowInFlight*, Ending>> endings;
  std::vector<RequestId> ready;  // beam searches that can go on
  size_t sampled = 0;
  size_t scored = 0;
  // `top` has the alternatives of all sampled tokens before those of the scored ones.
  uint32_t sampled_top = 0;
  uint32_t scored_top = 0;
  for (const TokenOutcome& outcome : result.sampled) scored_top += outcome.top_count;

  for (const RowInFlight& row : flight.rows) {
    const bool failed = HasFailed(result, row.sequence_id);
    counters_.computed_tokens += row.token_count;
    // Null: it ended meanwhile, or is planned again.
    Sequence* sequence = row.is_void ? nullptr : sequences_.Find(row.slot, row.sequence_id);
    // A sequence that was preempted meanwhile takes its token; what the row wrote went with its
    // blocks.
    if (sequence != nullptr && sequence->is_running() && !failed) {
      sequence->written = row.first_position + row.token_count;
      if (flight.step < sequence->copy_step) {
        sequence->written = std::min(sequence->written, sequence->copy_floor);
      }
      if (!sequence->request->no_cache) {
        replica.ledger.IndexFull(sequence->tokens, sequence->written,
                                 sequence->request->prefix_scope, flight.step, sequence->table);
      }
    }
    for (; scored < result.scored.size() && result.scored[scored].sequence_id == row.sequence_id;
         ++scored) {
      const TokenOutcome& outcome = result.scored[scored];
      if (sequence != nullptr && sequence->scores_due() &&
          outcome.position == sequence->request->next_score) {
        generated.tokens.push_back({.request_id = sequence->request->id,
                                    .scores_prompt = true,
                                    .outcome = outcome,
                                    .first_top = scored_top});
        ++sequence->request->next_score;
      }
      scored_top += outcome.top_count;
    }
    if (failed) {
      if (sequence == nullptr) continue;
      sequence->pending_samples -= row.samples;
      endings.emplace_back(&row,
                           Ending{.reason = FinishReason::kError,
                                  .status = LogitsNotFinite(row.first_position + row.token_count)});
      continue;
    }
    if (!row.samples) continue;
    const TokenOutcome& outcome = result.sampled[sampled++];
    if (sequence != nullptr) {
      --sequence->pending_samples;
      if (sequence->is_beam) {
        Request& request = *sequence->request;
        Deliver(row.slot, std::span(result.top).subspan(sampled_top, outcome.top_count));
        if (request.beams->delivered_count == request.sequences.size()) ready.push_back(request.id);
        sampled_top += outcome.top_count;
        continue;
      }
      sequence->tokens.push_back(outcome.token_id);
      if (!sequence->request->first_token) sequence->request->first_token = now;
      ++counters_.generated_tokens;
      generated.tokens.push_back({.request_id = sequence->request->id,
                                  .sequence_index = sequence->index,
                                  .outcome = outcome,
                                  .first_top = sampled_top});
      if (auto verdict = StopAfter(sequence->stop, sequence->output_count(), outcome.token_id)) {
        endings.emplace_back(&row,
                             Ending{.reason = verdict->reason, .stop_token = verdict->stop_token});
      }
    }
    sampled_top += outcome.top_count;
  }
  generated.top = result.top;
  trace_.AddResult(std::move(result), now);
  if (!generated.tokens.empty()) actions.push_back(std::move(generated));
  for (auto& [row, ending] : endings) {
    // The error of one sequence ends its request.
    if (sequences_.Find(row->slot, row->sequence_id) != nullptr) {
      Finish(row->slot, std::move(ending), now, actions);
    }
  }
  for (const RequestId id : ready) {
    if (Request* request = FindLive(id)) AdvanceBeams(*request, now, actions);
  }
  if (kv_recorder_ != nullptr) kv_recorder_->CompleteThrough(flight.step);
}

void Engine::On(const StepRefused& event, absl::Time now, Actions& actions) {
  if (!replica_ || event.replica_id != replica_->id || event.epoch != replica_->epoch ||
      event.step <= replica_->last_settled || event.step > replica_->last_planned) {
    ++counters_.stale_results;
    return;
  }
  if (++replica_->consecutive_resyncs > options_.max_consecutive_resyncs) {
    Reject(absl::FailedPreconditionError(
               absl::StrCat("the replica refused ", replica_->consecutive_resyncs,
                            " plans in a row; the last answer: ", PlainText(event.status))),
           now, actions);
    return;
  }
  ++counters_.resyncs;
  for (const SequenceSlot slot : RollBackSteps()) Requeue(slot);
  // The worker's tables are not what we think: it starts over from ours. Its pages keep what
  // completed steps wrote.
  for (const SequenceSlot slot : replica_->running) {
    sequences_[slot].table.MarkForgotten();
    sequences_[slot].on_worker = false;
  }
  replica_->releases.clear();
  replica_->digest = 0;
  replica_->resets_state = true;
}

void Engine::UndoFailedRows(const StepResult& result, StepInFlight& flight) {
  const Consequences failure = VoidReliant(result.failed, flight, replica_->in_flight);
  for (const IndexedAhead& it : failure.undone) replica_->ledger.Unindex(it.block);
  for (const RowInFlight* row : failure.voided) {
    Sequence* sequence = sequences_.Find(row->slot, row->sequence_id);
    if (sequence == nullptr) continue;
    sequence->pending_samples -= row->samples;
    const bool is_again =
        std::find(failure.again.begin(), failure.again.end(), sequence->id) != failure.again.end();
    if (is_again && sequence->is_running()) Requeue(row->slot);
  }
}

// Steps in flight never happened: what was indexed ahead of them leaves the index, and counts go
// back. Their blocks come back at once: the worker applies plans in order, so whatever it still
// does for them is done before a later plan begins.
std::vector<SequenceSlot> Engine::RollBackSteps() {
  Replica& replica = *replica_;
  std::vector<SequenceSlot> reliant;
  for (auto flight = replica.in_flight.rbegin(); flight != replica.in_flight.rend(); ++flight) {
    for (auto it = flight->indexed.rbegin(); it != flight->indexed.rend(); ++it) {
      replica.ledger.Unindex(it->block);
    }
    for (const Reliance& reliance : flight->reliances) {
      const RowInFlight& row = flight->rows[reliance.row];
      const Sequence* sequence = sequences_.Find(row.slot, row.sequence_id);
      if (reliance.step <= replica.last_settled || sequence == nullptr || !sequence->is_running()) {
        continue;
      }
      if (std::find(reliant.begin(), reliant.end(), row.slot) == reliant.end()) {
        reliant.push_back(row.slot);
      }
    }
  }
  for (const StepInFlight& flight : replica.in_flight) {
    for (const RowInFlight& row : flight.rows) {
      Sequence* sequence = sequences_.Find(row.slot, row.sequence_id);
      if (sequence == nullptr) continue;
      sequence->pending_samples = 0;
      sequence->planned = sequence->written;
      replica.ledger.RewindIndexed(sequence->written, sequence->table);
    }
  }
  if (!replica.in_flight.empty()) {
    replica.rolled_back_from = replica.in_flight.front().step;
    replica.rolled_back_through = replica.last_planned;
  }
  replica.in_flight.clear();
  replica.last_settled = replica.last_planned;
  replica.ledger.CompleteThrough(replica.last_settled);
  trace_.RollBack();
  if (kv_recorder_ != nullptr) kv_recorder_->CompleteThrough(replica.last_settled);
  return reliant;
}

void Engine::On(const ReplicaReady& event, absl::Time now, Actions& actions) {
  if (event.epoch <= last_epoch_) {
    ++counters_.stale_results;
    return;
  }
  last_epoch_ = event.epoch;
  if (replica_) {
    LoseReplica(absl::UnavailableError("it started anew"), now, actions);
  }
  absl::Status status;
  if (event.layer_groups.size() != 1) {
    status = absl::InvalidArgumentError(absl::StrCat("the replica has ", event.layer_groups.size(),
                                                     " layer groups; 1 is supported"));
  } else if (event.layer_groups[0].block_count == 0) {
    status = absl::InvalidArgumentError("the replica's pool has 0 blocks; it must have at least 1");
  } else {
    status = event.layer_groups[0].layout.Validate();
  }
  if (!status.ok()) {
    actions.push_back(ReplicaRejected{event.replica_id, event.epoch, status});
    return;
  }
  replica_.emplace(
      event.replica_id, event.epoch,
      KvLedger(event.layer_groups[0].layout, event.layer_groups[0].block_count,
               options_.prefix_cache, options_.prefix_match_unit, options_.prefix_seed));
  if (options_.kv_policy != KvPolicy::kPaged)
    replica_->ledger.UseContiguousRuns(options_.contiguous_allocator);
  AttachRecorder();
  // Who was accepted while there was no pool may turn out to be too long for it.
  std::vector<std::pair<Request*, absl::Status>> too_long;
  for (const auto& [id, request] : requests_) {
    const StopRule& stop = sequences_[request->sequences.front()].stop;
    const bool is_explicit = stop.limit_reason == FinishReason::kLength;
    absl::Status fits = CheckFits(request->prompt_token_count,
                                  is_explicit ? std::optional(stop.max_tokens) : std::nullopt,
                                  request->sample_count);
    if (!fits.ok()) too_long.emplace_back(request.get(), std::move(fits));
  }
  for (auto& [request, fits] : too_long) {
    FinishRequest(*request, {.reason = FinishReason::kError, .status = std::move(fits)}, now,
                  actions);
  }
}

}  // namespace octavo
