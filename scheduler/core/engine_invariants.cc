// Engine: the proof that its books balance. Each check recounts from the sequences what the engine
// keeps incrementally.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/table_digest.h"
#include "scheduler/core/engine.h"

namespace octavo {
namespace {

absl::Status Fault(const Sequence& sequence, const std::string& what) {
  return absl::InternalError(absl::StrCat("sequence ", sequence.id.value(), " (",
                                          SequenceStateName(sequence.state), "): ", what));
}

absl::Status Differs(const char* what, uint64_t kept, uint64_t counted) {
  return absl::InternalError(absl::StrCat(what, ": kept ", kept, ", counted ", counted));
}

}  // namespace

absl::Status Engine::CheckSequence(const Request& request, const Sequence& sequence) const {
  if (sequence.request != &request) return Fault(sequence, "it does not know its request");
  if (sequence.is_paused() != (request.paused || sequence.delivered)) {
    return Fault(sequence, "it is paused without cause, or not paused");
  }
  if (sequence.state == SequenceState::kEnded) return Fault(sequence, "it has ended and is here");
  if (sequence.pending_samples > 2) {
    return Fault(sequence, absl::StrCat(sequence.pending_samples, " samples are pending"));
  }
  if (sequence.output_count() >= sequence.stop.max_tokens) {
    return Fault(sequence, absl::StrCat("it has ", sequence.output_count(), " of at most ",
                                        sequence.stop.max_tokens, " tokens and goes on"));
  }
  if (!sequence.is_running()) {
    if (!sequence.table.empty() || sequence.shares_tail || sequence.written != 0 ||
        sequence.planned != 0 || sequence.on_worker || sequence.target_blocks != 0) {
      return Fault(sequence, "it waits and has blocks, written tokens or a place on the worker");
    }
    return absl::OkStatus();
  }
  if (!replica_) return Fault(sequence, "it runs on no replica");
  const KvLayout& layout = replica_->ledger.layout();
  if (sequence.written > sequence.planned ||
      sequence.planned + !sequence.delivered > sequence.reach()) {
    return Fault(sequence, absl::StrCat("written ", sequence.written, ", planned ",
                                        sequence.planned, ", reach ", sequence.reach()));
  }
  if (sequence.table.size() < layout.BlocksFor(sequence.planned)) {
    return Fault(sequence, absl::StrCat(sequence.table.size(), " blocks for ", sequence.planned,
                                        " planned tokens"));
  }
  const bool cached = options_.prefix_cache && !request.no_cache;
  const uint32_t full = sequence.written / layout.block_size;
  // Those between are indexed ahead of the step that fills them.
  if (sequence.table.indexed_count() < (cached ? full : 0) ||
      sequence.table.indexed_count() > (cached ? sequence.planned / layout.block_size : 0)) {
    return Fault(sequence, absl::StrCat(sequence.table.indexed_count(), " blocks are indexed of ",
                                        full, " full ones and ",
                                        sequence.planned / layout.block_size, " planned ones"));
  }
  for (uint32_t i = sequence.table.indexed_count(); i < sequence.table.size(); ++i) {
    // Another one may have written and indexed what it inherited.
    if ((i + 1) * layout.block_size <= sequence.inherited) continue;
    if (replica_->ledger.index().Contains(sequence.table[i])) {
      return Fault(sequence, absl::StrCat("block ", sequence.table[i].value(), " at index ", i,
                                          " is indexed and will be written"));
    }
  }
  for (uint32_t i = 0; i < sequence.table.indexed_count(); ++i) {
    const auto stored = replica_->ledger.index().TokensOf(sequence.table[i]);
    if (!std::equal(stored.begin(), stored.end(),
                    sequence.tokens.begin() + size_t{i} * layout.block_size)) {
      return Fault(sequence, absl::StrCat("block ", sequence.table[i].value(), " at index ", i,
                                          " is indexed with other tokens"));
    }
  }
  return absl::OkStatus();
}

// Each beam has another place, and those that have delivered are as many as the group says.
absl::Status Engine::CheckBeams(const Request& request) const {
  const BeamGroup& group = *request.beams;
  if (request.sequences.size() != group.search.beam_count()) {
    return Differs("beams", group.search.beam_count(), request.sequences.size());
  }
  uint32_t delivered = 0;
  std::vector<bool> taken(request.sample_count);
  for (const SequenceSlot slot : request.sequences) {
    const Sequence& beam = sequences_[slot];
    delivered += beam.delivered;
    if (!beam.is_beam || beam.output_count() != group.search.token_count() ||
        beam.pending_samples + beam.delivered > 1) {
      return Fault(beam, "it is no beam, is ahead of the others or behind, or chooses twice");
    }
    if (taken.at(beam.index)) return Fault(beam, "another beam has its place");
    taken[beam.index] = true;
  }
  if (delivered != group.delivered_count || delivered == request.sequences.size()) {
    return Differs("beams that have delivered, not all", group.delivered_count, delivered);
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckReplica() const {
  const Replica& replica = *replica_;
  std::vector<uint32_t> references(replica.ledger.pool().capacity(), 0);
  uint64_t digest = 0;
  uint32_t promised = 0;
  uint32_t unborn = 0;
  const Sequence* before = nullptr;
  for (const SequenceSlot slot : replica.running) {
    const Sequence& sequence = sequences_[slot];
    if (!sequence.is_running()) return Fault(sequence, "it is among the running");
    if (before != nullptr && !(before->key < sequence.key)) {
      return Fault(sequence, "it is out of order among the running");
    }
    before = &sequence;
    promised += sequence.promised_blocks();
    unborn += sequence.request->unborn_count;
    for (uint32_t i = 0; i < sequence.table.size(); ++i) {
      ++references[sequence.table[i].value()];
      if (sequence.on_worker && i < sequence.table.sent_count()) {
        digest += EntryDigest(sequence.id, i, sequence.table[i]);
      }
    }
  }
  std::vector<BlockId> ahead;
  for (const StepInFlight& flight : replica.in_flight) {
    for (const IndexedAhead& it : flight.indexed) {
      ahead.push_back(it.block);
      if (replica.ledger.index().ValidFrom(it.block) != flight.step) {
        return Differs("step that fills an indexed block",
                       replica.ledger.index().ValidFrom(it.block).value(), flight.step.value());
      }
    }
  }
  OCTAVO_RETURN_IF_ERROR(
      replica.ledger.CheckInvariants(std::move(references), replica.last_settled, ahead));
  OCTAVO_RETURN_IF_ERROR(planner_.CheckInvariants(replica, sequences_));
  if (promised != replica.promised_blocks) {
    return Differs("promised blocks", replica.promised_blocks, promised);
  }
  if (unborn != replica.unborn_count) return Differs("unborn", replica.unborn_count, unborn);
  if (promised > replica.ledger.available_count()) {
    return Differs("promised blocks of those available", promised,
                   replica.ledger.available_count());
  }
  if (digest != replica.digest) return Differs("table digest", replica.digest, digest);
  if (replica.in_flight.size() > options_.max_steps_in_flight ||
      replica.in_flight.size() != replica.last_planned.value() - replica.last_settled.value()) {
    return Differs("steps in flight", replica.in_flight.size(),
                   replica.last_planned.value() - replica.last_settled.value());
  }
  if (replica.running.size() + unborn > options_.max_sequences) {
    return Differs("running and unborn sequences at most", options_.max_sequences,
                   replica.running.size() + unborn);
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckInvariants() const {
  uint32_t waiting = 0;
  uint32_t queued = 0;
  uint32_t running = 0;
  uint32_t paused = 0;
  uint64_t waiting_tokens = 0;
  size_t deadlines = 0;
  size_t names = 0;
  size_t sequences = 0;
  for (const auto& [id, request] : requests_) {
    for (const SequenceSlot slot : request->sequences) {
      const Sequence& sequence = sequences_[slot];
      OCTAVO_RETURN_IF_ERROR(CheckSequence(*request, sequence));
      running += sequence.is_running();
      paused += sequence.is_paused();
      if (!sequence.is_running()) {
        ++waiting;
        waiting_tokens += sequence.prompt_token_count;
        queued += sequence.state == SequenceState::kWaiting;
      }
    }
    sequences += request->sequences.size();
    const size_t all = request->sequences.size() + request->ended.size() + request->unborn_count;
    if (!request->beams && all != request->sample_count) {
      return Differs("samples", request->sample_count, all);
    }
    if (request->beams) OCTAVO_RETURN_IF_ERROR(CheckBeams(*request));
    if (request->sequences.empty()) return Differs("live sequences at least", 1, 0);
    deadlines += deadlines_.contains({request->deadline, id});
    names += !request->client_request_id.empty();
  }
  if (sequences != sequences_.size()) return Differs("sequences", sequences_.size(), sequences);
  if (waiting != waiting_count_) return Differs("waiting sequences", waiting_count_, waiting);
  if (paused != paused_count_) return Differs("paused sequences", paused_count_, paused);
  if (waiting_tokens != waiting_tokens_) {
    return Differs("waiting tokens", waiting_tokens_, waiting_tokens);
  }
  if (queued != queue_.size()) return Differs("queue", queue_.size(), queued);
  if (deadlines != deadlines_.size()) return Differs("deadlines", deadlines_.size(), deadlines);
  if (names != request_of_client_id_.size()) {
    return Differs("client request ids", request_of_client_id_.size(), names);
  }
  for (const auto& [key, slot] : queue_) {
    if (sequences_[slot].state != SequenceState::kWaiting || sequences_[slot].key != key) {
      return Fault(sequences_[slot], "it is in the queue");
    }
  }
  if (!replica_) {
    return running == 0 ? absl::OkStatus() : Differs("running without a replica", 0, running);
  }
  if (running != replica_->running.size()) {
    return Differs("running sequences", replica_->running.size(), running);
  }
  return CheckReplica();
}

}  // namespace octavo
