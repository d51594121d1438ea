// Engine: what AdminService looks at. Nothing here changes anything.

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "scheduler/core/engine.h"
#include "scheduler/core/prefix_scope.h"

namespace octavo {

absl::Time Engine::NextDeadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

bool Engine::idle() const { return requests_.empty(); }

bool Engine::replica_ready() const { return replica_.has_value(); }

EngineCounters Engine::Counters() const {
  EngineCounters counters = counters_;
  counters.evicted_blocks = evicted_before_ + (replica_ ? replica_->ledger.evicted_count() : 0);
  return counters;
}

SchedulerState Engine::State() const {
  SchedulerState state{.draining = draining_,
                       .waiting_requests = waiting_count_,
                       .waiting_tokens = waiting_tokens_,
                       .recent_prefix_hit_ratio = recent_hits_.ratio(),
                       .paused_sequences = paused_count_,
                       .counters = Counters()};
  if (!replica_) return state;
  const KvLedger& ledger = replica_->ledger;
  state.replica_id = replica_->id;
  state.replica_ready = true;
  state.epoch = replica_->epoch;
  state.last_planned_step = replica_->last_planned;
  state.last_completed_step = replica_->last_settled;
  state.steps_in_flight = static_cast<uint32_t>(replica_->in_flight.size());
  state.block_size = ledger.layout().block_size;
  state.capacity_blocks = ledger.pool().capacity();
  state.free_blocks = ledger.pool().free_count();
  state.cached_blocks = ledger.pool().cached_count();
  state.held_blocks = ledger.pool().held_count();
  state.shared_blocks = ledger.pool().shared_count();
  state.returning_blocks = ledger.returning_count();
  state.waste = Waste();
  state.promised_blocks = replica_->promised_blocks;
  state.running_sequences = static_cast<uint32_t>(replica_->running.size());
  state.table_digest = replica_->digest;
  return state;
}

SlotWaste Engine::Waste() const {
  SlotWaste waste;
  if (!replica_) return waste;
  const uint64_t block_size = replica_->ledger.layout().block_size;
  for (const SequenceSlot slot : replica_->running) {
    const Sequence& sequence = sequences_[slot];
    const uint64_t slots = sequence.table.size() * block_size;
    // The last token it may have is never computed.
    const uint64_t most =
        std::min(slots, uint64_t{sequence.prompt_token_count} + sequence.stop.max_tokens - 1);
    waste.reserved += most - std::min<uint64_t>(most, sequence.planned);
    waste.internal += slots - most;
  }
  if (options_.kv_policy != KvPolicy::kPaged && !queue_.empty() && !replica_->running.empty())
    waste.external = replica_->ledger.pool().free_count() * block_size;
  return waste;
}

SequenceRecord Engine::MakeSequenceRecord(const Sequence& sequence) const {
  return {.sequence_index = sequence.index,
          .sequence_id = sequence.id,
          .state = sequence.state,
          .finish_reason = std::nullopt,
          .output_token_count = sequence.output_count(),
          .computed_token_count = sequence.written,
          .planned_token_count = sequence.planned,
          .block_count = sequence.table.size(),
          .seed = sequence.seed};
}

RequestRecord Engine::MakeRecord(const Request& request) const {
  std::vector<SequenceRecord> sequences = request.ended;
  for (const SequenceSlot slot : request.sequences) {
    sequences.push_back(MakeSequenceRecord(sequences_[slot]));
  }
  std::sort(sequences.begin(), sequences.end(),
            [](const SequenceRecord& a, const SequenceRecord& b) {
              return a.sequence_index < b.sequence_index;
            });
  RequestRecord record{
      .request_id = request.id,
      .client_request_id = request.client_request_id,
      .sequence_id = sequences.front().sequence_id,
      .replica_id = replica_ ? replica_->id : ReplicaId(),
      .state = SequenceState::kEnded,
      .finish_reason = std::nullopt,
      .priority = request.priority,
      .prompt_token_count = request.prompt_token_count,
      .max_output_token_count = request.max_tokens,
      .cached_token_count = request.cached_token_count,
      .preemption_count = request.preemption_count,
      .seed = request.seed,
      .submitted = request.submitted,
      .admitted = request.admitted,
      .first_token = request.first_token,
      .finished = std::nullopt,
      .deadline = request.deadline,
      .sample_count = request.sample_count,
  };
  for (const SequenceRecord& sequence : sequences) {
    record.output_token_count += sequence.output_token_count;
    record.computed_token_count += sequence.computed_token_count;
    record.planned_token_count += sequence.planned_token_count;
    record.block_count += sequence.block_count;
    // All live ones are paused, or none.
    const bool runs = sequence.state == SequenceState::kRunning ||
                      sequence.state == SequenceState::kPausedRunning;
    if (record.state == SequenceState::kEnded || runs) record.state = sequence.state;
  }
  record.sequences = std::move(sequences);
  return record;
}

std::vector<RequestRecord> Engine::ListRequests(uint32_t first, uint32_t limit) const {
  std::vector<RequestRecord> records;
  absl::flat_hash_set<RequestId> seen;
  const auto add = [&](const Request& request) {
    if (request.sample_count > 1 && !seen.insert(request.id).second) return;
    if (first > 0) {
      --first;
    } else if (records.size() < limit) {
      records.push_back(MakeRecord(request));
    }
  };
  if (replica_) {
    for (const SequenceSlot slot : replica_->running) add(*sequences_[slot].request);
  }
  for (const auto& [key, slot] : queue_) {
    if (records.size() >= limit) return records;
    add(*sequences_[slot].request);
  }
  for (const auto& [id, request] : requests_) {
    if (records.size() >= limit) return records;
    for (const SequenceSlot slot : request->sequences) {
      if (sequences_[slot].state != SequenceState::kPausedWaiting) continue;
      add(*request);
      break;
    }
  }
  return records;
}

std::optional<RequestRecord> Engine::FindRequest(RequestId request_id) const {
  if (const auto live = requests_.find(request_id); live != requests_.end()) {
    return MakeRecord(*live->second);
  }
  const auto ended = std::find_if(ended_.rbegin(), ended_.rend(), [&](const RequestRecord& it) {
    return it.request_id == request_id;
  });
  return ended == ended_.rend() ? std::nullopt : std::optional(*ended);
}

std::optional<RequestRecord> Engine::FindRequest(absl::string_view client_request_id) const {
  if (client_request_id.empty()) return std::nullopt;
  const auto live = request_of_client_id_.find(client_request_id);
  if (live != request_of_client_id_.end()) return MakeRecord(*requests_.at(live->second));
  const auto ended = std::find_if(ended_.rbegin(), ended_.rend(), [&](const RequestRecord& it) {
    return it.client_request_id == client_request_id;
  });
  return ended == ended_.rend() ? std::nullopt : std::optional(*ended);
}

BlockTableRecord Engine::MakeTableRecord(const Sequence& sequence) const {
  BlockTableRecord record{.request_id = sequence.request->id,
                          .sequence_index = sequence.index,
                          .sequence_id = sequence.id,
                          .token_count = static_cast<uint32_t>(sequence.tokens.size())};
  if (!replica_) return record;
  const KvLedger& ledger = replica_->ledger;
  record.replica_id = replica_->id;
  record.block_size = ledger.layout().block_size;
  for (uint32_t i = 0; i < sequence.table.size(); ++i) {
    const BlockId block = sequence.table[i];
    const uint32_t before = i * record.block_size;
    BlockTableEntry entry{
        .block = block,
        .filled_token_count =
            sequence.written > before ? std::min(sequence.written - before, record.block_size) : 0,
        .reference_count = ledger.pool().reference_count(block),
        .indexed = ledger.index().Contains(block)};
    if (entry.indexed) entry.prefix_hash = PrefixKeyHex(ledger.index().NodeOf(block).key);
    record.entries.push_back(std::move(entry));
  }
  return record;
}

std::vector<BlockTableRecord> Engine::BlockTablesOf(RequestId request_id) const {
  std::vector<BlockTableRecord> tables;
  const auto live = requests_.find(request_id);
  if (live == requests_.end()) return tables;
  for (const SequenceSlot slot : live->second->sequences) {
    tables.push_back(MakeTableRecord(sequences_[slot]));
  }
  return tables;
}

std::optional<BlockTableRecord> Engine::BlockTableOf(RequestId request_id) const {
  const auto live = requests_.find(request_id);
  if (live == requests_.end()) return std::nullopt;
  return MakeTableRecord(sequences_[live->second->sequences.front()]);
}

std::vector<BlockRecord> Engine::ListBlocks(uint32_t first, uint32_t limit) const {
  std::vector<BlockRecord> records;
  if (!replica_) return records;
  const uint32_t capacity = replica_->ledger.pool().capacity();
  for (uint32_t i = first; i < capacity && records.size() < limit; ++i) {
    records.push_back(replica_->ledger.Describe(BlockId(i)));
  }
  return records;
}

std::vector<BlockId> Engine::ReuseOrder(uint32_t limit) const {
  std::vector<BlockId> blocks;
  if (!replica_) return blocks;
  const FreeQueue& queue = replica_->ledger.pool().queue();
  for (BlockId it = queue.Front(); it != queue.end() && blocks.size() < limit;
       it = queue.Next(it)) {
    blocks.push_back(it);
  }
  return blocks;
}

PrefixLookup Engine::LookupPrefix(std::span<const TokenId> tokens,
                                  absl::string_view cache_salt) const {
  if (!replica_) return {};
  PrefixHit hit = replica_->ledger.FindPrefix(tokens, PrefixScope(cache_salt));
  if (hit.run.token_count > 0) hit.blocks.push_back(hit.run.block);
  return {hit.token_count, std::move(hit.blocks)};
}

std::vector<StepRecord> Engine::StepTrace(uint32_t limit) const { return trace_.Last(limit); }

}  // namespace octavo
