#include "scheduler/core/planner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace octavo {
namespace {

bool IsInFlight(const Replica& replica, const Sequence& sequence) {
  return sequence.last_step > replica.last_settled;
}

// Its last token is in flight: it ends with it, whatever the token is.
bool IsEnding(const Sequence& sequence) { return !sequence.wants_step(); }

}  // namespace

void PlanChoice::Clear() {
  exhausted.clear();
  preempted.clear();
  admitted.clear();
  rows.clear();
  prefix_waits.clear();
}

bool Planner::WantsRow(const Sequence& sequence) const {
  return sequence.state == SequenceState::kRunning && sequence.wants_step() &&
         !(sequence.is_beam && sequence.pending_samples > 0) && !SitsOut(sequence);
}

uint32_t Planner::ChunkOf(uint32_t wanted, uint32_t budget) const {
  uint32_t chunk = std::min(wanted, budget);
  if (options_->long_prefill_token_limit > 0) {
    chunk = std::min(chunk, options_->long_prefill_token_limit);
  }
  return chunk;
}

void Planner::Choose(const Replica& replica, const SequenceStore& sequences,
                     const RequestQueue& queue, const LossTrials& trials, PlanChoice& choice) {
  choice.Clear();
  replica_ = &replica;
  trials_ = &trials;
  gone_.assign(replica.running.size(), 0);
  running_count_ = static_cast<uint32_t>(replica.running.size());
  places_ = running_count_ + replica.unborn_count;
  dropped_.clear();
  budget_ = options_->max_step_tokens;
  unpromised_ = replica.ledger.available_count() - replica.promised_blocks;
  returning_ = replica.ledger.returning_count();
  counted_ending_ = false;
  short_of_blocks_ = false;
  providers_.Clear();
  trial_runs_ = queue.empty() ? nullptr : replica.ledger.TrialRuns();
  ChooseRunning(sequences, choice);
  // After a preemption the hits looked up now would not be those that are there when the choice is
  // applied.
  if (!short_of_blocks_ && choice.preempted.empty() && choice.exhausted.empty()) {
    ChooseWaiting(sequences, queue, choice);
  }
}

void Planner::ChooseRunning(const SequenceStore& sequences, PlanChoice& choice) {
  const std::vector<SequenceSlot>& running = replica_->running;
  // Tokens set aside for the decodes that come later in the order than a prefill chunk.
  uint32_t set_aside = 0;
  for (const SequenceSlot slot : running) {
    const Sequence& sequence = sequences[slot];
    set_aside += WantsRow(sequence) && sequence.reach() - sequence.planned == 1;
  }
  for (size_t i = 0; i < running.size(); ++i) {
    const Sequence& sequence = sequences[running[i]];
    if (!WantsRow(sequence)) continue;
    const uint32_t wanted = sequence.reach() - sequence.planned;
    if (wanted == 1) --set_aside;
    if (gone_[i]) continue;
    const uint32_t tokens = ChunkOf(wanted, budget_ > set_aside ? budget_ - set_aside : 0);
    if (tokens == 0) continue;
    const uint32_t blocks =
        replica_->ledger.layout().BlocksFor(uint64_t{sequence.planned} + tokens);
    const uint32_t need = blocks > sequence.table.size() ? blocks - sequence.table.size() : 0;
    const uint32_t growth = need - std::min(need, sequence.promised_blocks());
    if ((growth > 0 || sequence.shares_tail) && !MakeRoom(sequences, i, growth, choice)) {
      short_of_blocks_ = true;
      continue;
    }
    const bool copies = MustCopy(sequence);
    if (copies) Drop(sequence.table[sequence.table.size() - 1], /*in_flight=*/true);
    unpromised_ -= growth + copies;
    budget_ -= tokens;
    choice.rows.push_back({running[i], sequence.planned, tokens, need, copies});
    if (wanted > 1) Provide(running[i], sequence, sequence.planned + tokens);
  }
}

bool Planner::MustCopy(const Sequence& sequence) const {
  if (!sequence.shares_tail) return false;
  const uint32_t index = replica_->ledger.layout().BlockIndex(sequence.planned);
  if (index >= sequence.table.size()) return false;
  const BlockId block = sequence.table[index];
  const auto dropped = dropped_.find(block);
  return replica_->ledger.table_count(block) >
         1 + (dropped == dropped_.end() ? 0 : dropped->second.references);
}

Planner::Freed Planner::FreedBy(const Sequence& sequence) const {
  const bool in_flight = IsInFlight(*replica_, sequence);
  Freed freed;
  if (dropped_.empty()) {
    (in_flight ? freed.later : freed.now) = replica_->ledger.CountFreedBy(sequence.table);
    return freed;
  }
  for (const BlockId block : sequence.table.blocks()) {
    const auto it = dropped_.find(block);
    const Dropped dropped = it == dropped_.end() ? Dropped() : it->second;
    if (replica_->ledger.pool().reference_count(block) != 1 + dropped.references) continue;
    ++(in_flight || dropped.in_flight ? freed.later : freed.now);
  }
  return freed;
}

void Planner::Drop(BlockId block, bool in_flight) {
  if (replica_->ledger.pool().reference_count(block) == 1) return;
  Dropped& dropped = dropped_[block];
  ++dropped.references;
  dropped.in_flight |= in_flight;
}

bool Planner::MakeRoom(const SequenceStore& sequences, size_t index, uint32_t growth,
                       PlanChoice& choice) {
  const Sequence& sequence = sequences[replica_->running[index]];
  // Who shares its tail may be preempted meanwhile.
  const auto excess = [&] { return growth + MustCopy(sequence); };
  if (excess() > unpromised_ && !counted_ending_) {
    counted_ending_ = true;
    for (const SequenceSlot slot : replica_->running) {
      if (IsEnding(sequences[slot])) returning_ += FreedBy(sequences[slot]).count();
    }
  }
  while (excess() > unpromised_) {
    if (excess() <= unpromised_ + returning_) return false;  // enough comes back by itself
    if (PreemptOne(sequences, index, /*idle_only=*/false, choice)) continue;
    if (running_count_ > 1) {
      if (FreedBy(sequence).count() > 0) PreemptAt(sequences, index, choice);
    } else if (returning_ == 0 && !IsInFlight(*replica_, sequence)) {
      choice.exhausted.push_back(replica_->running[index]);
    }
    return false;
  }
  return true;
}

bool Planner::PreemptOne(const SequenceStore& sequences, size_t index, bool idle_only,
                         PlanChoice& choice) {
  const std::vector<SequenceSlot>& running = replica_->running;
  for (const bool idle : {true, false}) {
    if (!idle && idle_only) return false;
    for (size_t j = running.size(); j-- > (idle ? 0 : index + 1);) {
      const Sequence& victim = sequences[running[j]];
      if (gone_[j] || SitsOut(victim) != idle || IsEnding(victim)) continue;
      if (!victim.shares_tail && FreedBy(victim).count() == 0) continue;
      PreemptAt(sequences, j, choice);
      return true;
    }
  }
  return false;
}

void Planner::PreemptAt(const SequenceStore& sequences, size_t index, PlanChoice& choice) {
  const Sequence& victim = sequences[replica_->running[index]];
  const Freed freed = FreedBy(victim);
  unpromised_ += freed.now + victim.promised_blocks();
  returning_ += freed.later;
  for (const BlockId block : victim.table.blocks()) Drop(block, IsInFlight(*replica_, victim));
  places_ -= 1 + victim.request->unborn_count;
  gone_[index] = 1;
  --running_count_;
  choice.preempted.push_back(replica_->running[index]);
}

PrefixHit Planner::LookUp(SequenceSlot slot, const Sequence& sequence) {
  PrefixHit earlier;
  if (remembered_.epoch == replica_->epoch && remembered_.slot == slot &&
      remembered_.sequence_id == sequence.id) {
    earlier = std::exchange(remembered_.hit, {});
  }
  return replica_->ledger.FindPrefix(sequence.tokens, sequence.request->prefix_scope,
                                     std::move(earlier));
}

absl::Status Planner::CheckInvariants(const Replica& replica,
                                      const SequenceStore& sequences) const {
  const Sequence* sequence = sequences.Find(remembered_.slot, remembered_.sequence_id);
  if (sequence == nullptr || remembered_.epoch != replica.epoch) return absl::OkStatus();
  const std::string& scope = sequence->request->prefix_scope;
  const PrefixHit again = replica.ledger.FindPrefix(sequence->tokens, scope, remembered_.hit);
  const PrefixHit anew = replica.ledger.FindPrefix(sequence->tokens, scope);
  if (again == anew) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "sequence ", sequence->id.value(), ": the hit remembered gives ", again.token_count,
      " tokens in ", again.blocks.size(), " blocks, ", again.idle_block_count,
      " of them idle; a lookup gives ", anew.token_count, " in ", anew.blocks.size(), ", ",
      anew.idle_block_count, " idle, or other blocks"));
}

uint32_t Planner::TargetOf(const Sequence& sequence) const {
  const KvLayout& layout = replica_->ledger.layout();
  if (trial_runs_ == nullptr) return layout.BlocksFor(sequence.tokens.size());
  return layout.BlocksFor(ReservedTokens(options_->kv_policy, sequence.prompt_token_count,
                                         sequence.stop.max_tokens, options_->context_length));
}

void Planner::Provide(SequenceSlot slot, const Sequence& sequence, uint32_t end) {
  if (options_->prefix_cache && !sequence.request->no_cache) providers_.Add(slot, sequence, end);
}

// Without a lookup: it was found to wait in the plan before.
bool Planner::KeepsWaiting(SequenceSlot slot, const Sequence& sequence, PlanChoice& choice) const {
  const PrefixWait& wait = sequence.prefix_wait;
  if (wait.step_count == 0 || wait.step_count >= options_->max_prefix_wait_steps) return false;
  if (!providers_.IsComputing(wait.on, wait.token_count)) return false;
  choice.prefix_waits.push_back({slot, {wait.on, wait.token_count, wait.step_count + 1}});
  return true;
}

bool Planner::WaitsForPrefix(SequenceSlot slot, const Sequence& sequence, const PrefixHit& hit,
                             const PrefixProviders::Offer& offer, PlanChoice& choice) const {
  const uint32_t waited = sequence.prefix_wait.step_count;
  if (offer.later_count <= std::max(offer.now_count, hit.token_count)) return false;
  if (waited >= options_->max_prefix_wait_steps) return false;
  choice.prefix_waits.push_back({slot, {offer.awaited, offer.later_count, waited + 1}});
  return true;
}

bool Planner::IsBatchClosed() {
  if (options_->kv_policy != KvPolicy::kStatic) return false;
  if (replica_->running.empty()) {
    batch_size_ = 0;
    batch_was_full_ = false;
  }
  batch_was_full_ |= replica_->running.size() < batch_size_;
  return batch_was_full_;
}

void Planner::ChooseWaiting(const SequenceStore& sequences, const RequestQueue& queue,
                            PlanChoice& choice) {
  if (IsBatchClosed()) return;
  for (const auto& [key, slot] : queue) {
    if (!SitsOut(sequences[slot]) && !Consider(sequences, slot, choice)) return;
  }
}

bool Planner::Consider(const SequenceStore& sequences, SequenceSlot slot, PlanChoice& choice) {
  const Sequence& sequence = sequences[slot];
  // A preempted sequence whose last step is still in flight may get a token from it: then it knows
  // where to go on.
  if (budget_ == 0 || IsInFlight(*replica_, sequence)) return false;
  const uint32_t places = 1 + sequence.request->unborn_count;
  if (places_ + places > options_->max_sequences) {
    if (choice.admitted.empty()) PreemptOne(sequences, 0, /*idle_only=*/true, choice);
    return false;
  }
  Beginning beginning{.target_blocks = TargetOf(sequence)};
  if (beginning.target_blocks > replica_->ledger.pool().capacity()) {
    choice.exhausted.push_back(slot);
    return false;
  }
  if (UsesPrefixes(sequence)) {
    const uint32_t block_size = replica_->ledger.layout().block_size;
    if (choice.prefix_waits.size() == options_->max_sequences) return false;
    if (KeepsWaiting(slot, sequence, choice)) return true;
    beginning.hit = LookUp(slot, sequence);
    beginning.offer = providers_.For(sequence, block_size);
    if (WaitsForPrefix(slot, sequence, beginning.hit, beginning.offer, choice)) return true;
    if (beginning.offer.now_count > beginning.hit.token_count) {
      beginning.shared_blocks = beginning.offer.now_count / block_size;
      beginning.hit = {};
    }
  }
  const uint32_t floor = running_count_ > 0 ? options_->watermark_blocks : 0;
  // An idle block that is only copied from comes on top of all others. What needs the whole pool
  // could never have it: then those tokens are computed.
  if (beginning.needed_blocks() + floor > unpromised_ && beginning.hit.run_is_idle) {
    beginning.hit.DropRun();
  }
  if (beginning.needed_blocks() + floor > unpromised_) {
    batch_was_full_ = true;
    // What a slow reader holds goes to who waits; the hit is looked up again when it is back. Not
    // in a step that admits others: what the victim leaves in the index may take the place of a
    // leaf that they are to copy from.
    if (choice.admitted.empty()) PreemptOne(sequences, 0, /*idle_only=*/true, choice);
    remembered_ = {replica_->epoch, slot, sequence.id, std::move(beginning.hit)};
    return false;
  }
  return Admit(slot, sequence, std::move(beginning), choice);
}

bool Planner::Admit(SequenceSlot slot, const Sequence& sequence, Beginning beginning,
                    PlanChoice& choice) {
  uint32_t reserved = 0;
  if (trial_runs_ != nullptr) {
    const std::optional<BlockRun> run = trial_runs_->Allocate(beginning.target_blocks);
    if (!run && running_count_ == 0 && returning_ == 0) choice.exhausted.push_back(slot);
    batch_was_full_ = !run;
    if (!run) return false;
    reserved = run->count;
  }
  const uint32_t shared = beginning.shared_blocks;
  const uint32_t cached = shared > 0 ? beginning.offer.now_count : beginning.hit.token_count;
  const auto known = static_cast<uint32_t>(sequence.tokens.size());
  const uint32_t tokens = ChunkOf(known - cached, budget_);
  const uint32_t blocks = replica_->ledger.layout().BlocksFor(uint64_t{cached} + tokens);
  unpromised_ -= reserved > 0 ? reserved : beginning.needed_blocks();
  budget_ -= tokens;
  batch_size_ = ++running_count_;
  places_ += 1 + sequence.request->unborn_count;
  choice.rows.push_back(
      {.slot = slot,
       .first_position = cached,
       .token_count = tokens,
       .new_block_count = reserved > 0 ? 0 : blocks - shared - beginning.hit.block_count(),
       .shared_block_count = shared,
       .shared_from = beginning.offer.slot});
  choice.admitted.push_back(
      {slot, std::move(beginning.hit), cached, beginning.target_blocks, reserved});
  Provide(slot, sequence, cached + tokens);
  return true;
}

}  // namespace octavo
