// Engine: making a step of what the planner chose. The choice is complete and covered by blocks
// that are there, so that nothing here can fail halfway.

#include <algorithm>
#include <utility>

#include "glog/logging.h"
#include "scheduler/core/engine.h"

namespace octavo {

bool Engine::PlanNext(absl::Time now, std::vector<Action>& actions) {
  ExpireDeadlines(now, actions);
  ClearSuspects();
  const uint32_t steps_in_flight = trials_.active() ? 1 : options_.max_steps_in_flight;
  if (!replica_ || replica_->in_flight.size() >= steps_in_flight) return false;
  while (true) {
    planner_.Choose(*replica_, sequences_, queue_, trials_, choice_);
    for (const SequenceSlot slot : choice_.exhausted) {
      Finish(slot, {.reason = FinishReason::kPoolExhausted}, now, actions);
    }
    if (!choice_.exhausted.empty()) continue;
    for (const SequenceSlot slot : choice_.preempted) Preempt(slot);
    if (!choice_.rows.empty()) break;
    // What was preempted may be all that stood in the way; if a step in flight does too, its
    // completion comes back here.
    if (!replica_->in_flight.empty()) return false;
    if (!choice_.preempted.empty()) continue;
    if (!trials_.active()) return false;
    trials_.ClearGroup();
    ClearSuspects();
  }
  // Hits first: a block somebody was promised must not be evicted for another row of the same step.
  for (Admission& admission : choice_.admitted) Admit(admission, now, actions);
  for (const auto& [slot, wait] : choice_.prefix_waits) sequences_[slot].prefix_wait = wait;
  StepPlan plan = MakePlan(choice_);
  ++counters_.steps_planned;
  trace_.AddPlan(plan, now);
  actions.push_back(SendPlan{std::move(plan)});
  return true;
}

void Engine::Admit(Admission& admission, absl::Time now, Actions& actions) {
  Sequence& sequence = sequences_[admission.slot];
  Request& request = *sequence.request;
  queue_.Remove(sequence.key);
  --waiting_count_;
  waiting_tokens_ -= sequence.prompt_token_count;
  Move(sequence, SequenceState::kRunning);
  if (admission.reserved_blocks > 0) {
    replica_->ledger.Reserve(admission.reserved_blocks, sequence.table);
  } else {
    replica_->ledger.Share(admission.hit, sequence.table);
  }
  // The copy of the hit's run is part of the step to come: until that is done, only whole blocks
  // are written.
  sequence.written = admission.cached_token_count - admission.hit.run.token_count;
  sequence.planned = admission.cached_token_count;
  sequence.prefix_wait = {};
  sequence.target_blocks = admission.target_blocks;
  replica_->promised_blocks += sequence.promised_blocks();
  replica_->unborn_count += request.unborn_count;
  AddToRunning(admission.slot);
  if (request.admitted.has_value()) {
    if (sequence.given_up > sequence.planned) {
      counters_.recomputed_tokens += sequence.given_up - sequence.planned;
    }
    sequence.given_up = 0;
    return;
  }
  request.admitted = now;
  request.cached_token_count = admission.cached_token_count;
  ++counters_.requests_admitted;
  counters_.prompt_tokens += sequence.prompt_token_count;
  if (options_.prefix_cache && !request.no_cache && !request.prompt_logprobs) {
    counters_.prefix_queried_tokens += sequence.tokens.size();
    counters_.prefix_hit_tokens += admission.cached_token_count;
    recent_hits_.Add(1, sequence.tokens.size(), admission.cached_token_count);
  }
  actions.push_back(
      RequestAdmitted{request.id, request.cached_token_count, now - request.submitted});
}

void Engine::AddToRunning(SequenceSlot slot) {
  auto& running = replica_->running;
  running.insert(std::upper_bound(running.begin(), running.end(), slot,
                                  [this](SequenceSlot a, SequenceSlot b) {
                                    return sequences_[a].key < sequences_[b].key;
                                  }),
                 slot);
}

void Engine::Preempt(SequenceSlot slot) {
  Sequence& sequence = sequences_[slot];
  sequence.given_up = sequence.written;
  ++sequence.request->preemption_count;
  ++counters_.preemptions;
  Requeue(slot);
}

void Engine::Requeue(SequenceSlot slot) {
  Sequence& sequence = sequences_[slot];
  const bool paused = sequence.is_paused();
  Vacate(slot);
  Move(sequence, paused ? SequenceState::kPausedWaiting : SequenceState::kWaiting);
  if (!paused) queue_.Push(sequence.key, slot);
  ++waiting_count_;
  waiting_tokens_ += sequence.prompt_token_count;
}

void Engine::Vacate(SequenceSlot slot) {
  Sequence& sequence = sequences_[slot];
  auto& running = replica_->running;
  running.erase(std::find(running.begin(), running.end(), slot));
  replica_->promised_blocks -= sequence.promised_blocks();
  if (sequence.index == 0) replica_->unborn_count -= sequence.request->unborn_count;
  sequence.target_blocks = 0;
  if (sequence.on_worker) {
    replica_->digest -= sequence.table.digest();
    replica_->releases.push_back(sequence.id);
    sequence.on_worker = false;
  }
  KvLedger& ledger = replica_->ledger;
  if (!sequence.request->no_cache) {
    ledger.IndexLeaf(sequence.tokens, sequence.written, sequence.request->prefix_scope,
                     replica_->last_settled, sequence.table);
  }
  if (sequence.last_step > replica_->last_settled) {
    ledger.ReleaseAfter(sequence.last_step, sequence.table);
  } else {
    ledger.Release(sequence.table);
  }
  sequence.written = 0;
  sequence.planned = 0;
  sequence.shares_tail = false;
  sequence.inherited = 0;
  sequence.copy_step = {};
  sequence.copy_floor = 0;
}

StepPlan Engine::MakePlan(const PlanChoice& choice) {
  Replica& replica = *replica_;
  const std::vector<ChosenRow>& rows = choice.rows;
  replica.last_planned = StepNumber(replica.last_planned.value() + 1);
  StepPlan plan{.replica_id = replica.id,
                .epoch = replica.epoch,
                .step = replica.last_planned,
                .resets_state = std::exchange(replica.resets_state, false),
                .releases = std::exchange(replica.releases, {})};
  plan.layer_groups.resize(1);
  plan.rows.reserve(rows.size());
  plan.token_ids.reserve(rows.size());
  plan.layer_groups[0].new_block_counts.reserve(rows.size());
  StepInFlight flight{.step = plan.step};
  flight.rows.reserve(rows.size());
  const size_t first_admitted = rows.size() - choice.admitted.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    const SequenceSlot slot = rows[i].slot;
    AddRow(rows[i], plan, flight);
    if (i >= first_admitted) {
      const PrefixHit& hit = choice.admitted[i - first_admitted].hit;
      NoteSharing(rows[i], hit, static_cast<uint32_t>(flight.rows.size() - 1), flight);
      if (hit.run.token_count > 0) CopyRun(hit, sequences_[slot].table, plan);
    }
    const Request& request = *sequences_[slot].request;
    if (flight.rows.back().samples && request.unborn_count > 0 && !request.beams) {
      BearSiblings(slot, plan, flight);
    }
  }
  plan.layer_groups[0].digest = replica.digest;
  flight.digest = replica.digest;
  replica.in_flight.push_back(std::move(flight));
  return plan;
}

void Engine::CopyRun(const PrefixHit& hit, const BlockTable& table, StepPlan& plan) {
  plan.layer_groups[0].copies.push_back({.source = hit.run.block,
                                         .destination = table[hit.block_count()],
                                         .token_count = hit.run.token_count});
  replica_->ledger.ReleaseAfter(plan.step, hit.run.block);
}

// Whom the row of an admission relies on for blocks that are still to be filled.
void Engine::NoteSharing(const ChosenRow& row, const PrefixHit& hit, uint32_t index,
                         StepInFlight& flight) {
  const PrefixIndex& prefixes = replica_->ledger.index();
  uint32_t blocks = NoteReliances(hit.blocks, prefixes, replica_->in_flight, index, flight);
  if (hit.run.token_count > 0) {
    NoteReliances({&hit.run.block, 1}, prefixes, replica_->in_flight, index, flight);
  }
  if (row.shared_block_count > 0) {
    flight.reliances.push_back({index, sequences_[row.shared_from].id, flight.step});
    blocks += row.shared_block_count;
  }
  counters_.prefix_in_flight_hit_tokens += blocks * replica_->ledger.layout().block_size;
}

void Engine::AddRow(const ChosenRow& row, StepPlan& plan, StepInFlight& flight) {
  Replica& replica = *replica_;
  Sequence& sequence = sequences_[row.slot];
  const uint32_t first = row.first_position;
  const uint32_t end = first + row.token_count;
  const auto known = static_cast<uint32_t>(sequence.tokens.size());
  const bool samples = end == sequence.reach();
  const bool feeds_sampled = end > known;
  CHECK_EQ(first, sequence.planned);
  // The worker feeds back what it sampled in the step before, and no other.
  CHECK(!feeds_sampled || sequence.last_step.value() + 1 == plan.step.value());

  // Whoever shared it may have been preempted since, for a row after this one.
  if (row.copies_tail && replica.ledger.table_count(sequence.table.blocks().back()) > 1) {
    CopyTail(sequence, plan);
  }
  sequence.shares_tail = false;
  replica.promised_blocks -= sequence.promised_blocks();
  if (row.shared_block_count > 0) {
    replica.ledger.ShareBeginning(sequences_[row.shared_from].table, row.shared_block_count,
                                  sequence.table);
  }
  replica.ledger.Append(row.new_block_count, sequence.table);
  replica.promised_blocks += sequence.promised_blocks();

  const bool scores = sequence.scores_due() && first + 1 < sequence.prompt_token_count;
  SendState(sequence, plan);
  plan.rows.push_back({.sequence_id = sequence.id,
                       .first_position = first,
                       .token_count = row.token_count,
                       .samples = samples,
                       .feeds_sampled = feeds_sampled,
                       .scores = scores});
  plan.token_ids.insert(plan.token_ids.end(), sequence.tokens.begin() + first,
                        sequence.tokens.begin() + std::min(end, known));
  flight.rows.push_back(
      {.slot = row.slot,
       .sequence_id = sequence.id,
       .first_position = first,
       .token_count = row.token_count,
       .samples = samples,
       .score_count = scores ? std::min(end + 1, sequence.prompt_token_count) - (first + 1) : 0,
       .top_count = sequence.sampling.logprobs.value_or(0)});
  // Blocks whose tokens are all known are indexed ahead of the step that fills them. One that an
  // earlier step fills, when its last token was only known to the worker, is indexed with its
  // result.
  uint32_t indexed = sequence.table.indexed_count();
  if (!sequence.request->no_cache && indexed == first / replica.ledger.layout().block_size) {
    replica.ledger.IndexFull(sequence.tokens, std::min(end, known), sequence.request->prefix_scope,
                             plan.step, sequence.table);
    for (; indexed < sequence.table.indexed_count(); ++indexed) {
      flight.indexed.push_back(
          {sequence.table[indexed], static_cast<uint32_t>(flight.rows.size() - 1)});
    }
  }
  sequence.planned = end;
  sequence.pending_samples += samples;
  sequence.last_step = plan.step;
}

void Engine::SendState(Sequence& sequence, StepPlan& plan) {
  if (!sequence.on_worker) {
    SequenceStart start{.sequence_id = sequence.id,
                        .seed = sequence.seed,
                        .prompt_token_count = sequence.prompt_token_count,
                        .sampling = sequence.sampling};
    if (sequence.sampling.needs_history() || sequence.scores_due()) start.history = sequence.tokens;
    plan.starts.push_back(std::move(start));
    sequence.on_worker = true;
  }
  LayerGroupChange& change = plan.layer_groups[0];
  const auto new_blocks = sequence.table.blocks().subspan(sequence.table.sent_count());
  change.new_block_counts.push_back(static_cast<uint32_t>(new_blocks.size()));
  change.new_blocks.insert(change.new_blocks.end(), new_blocks.begin(), new_blocks.end());
  replica_->digest += sequence.table.MarkSent(sequence.id);
}

}  // namespace octavo
