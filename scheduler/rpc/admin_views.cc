#include "scheduler/rpc/admin_views.h"

#include "absl/container/flat_hash_map.h"
#include "common/wire/step_codec.h"
#include "scheduler/rpc/memory_plan.h"

namespace octavo {
namespace {

v1::BlockState EncodeBlockState(BlockState state) {
  switch (state) {
    case BlockState::kFree:
      return v1::BLOCK_STATE_FREE;
    case BlockState::kCached:
      return v1::BLOCK_STATE_CACHED;
    case BlockState::kHeld:
      return v1::BLOCK_STATE_HELD;
  }
  return v1::BLOCK_STATE_UNSPECIFIED;
}

// `computes_prompt`: as far as results confirm it, some of the prompt is not computed.
v1::RequestState EncodeRequestState(SequenceState state, bool was_preempted, bool computes_prompt) {
  switch (state) {
    case SequenceState::kWaiting:
      return was_preempted ? v1::REQUEST_STATE_PREEMPTED : v1::REQUEST_STATE_QUEUED;
    case SequenceState::kRunning:
      return computes_prompt ? v1::REQUEST_STATE_PREFILL : v1::REQUEST_STATE_DECODE;
    case SequenceState::kPausedWaiting:
    case SequenceState::kPausedRunning:
      return v1::REQUEST_STATE_PAUSED;
    case SequenceState::kEnded:
      return v1::REQUEST_STATE_FINISHED;
  }
  return v1::REQUEST_STATE_UNSPECIFIED;
}

void EncodeSequence(const RequestRecord& request, const SequenceRecord& record,
                    v1::SequenceSummary& message) {
  message.set_sequence_index(record.sequence_index);
  message.set_state(EncodeRequestState(record.state, request.preemption_count > 0,
                                       record.computed_token_count < request.prompt_token_count));
  message.set_completion_tokens(record.output_token_count);
  message.set_computed_tokens(record.computed_token_count);
  message.set_blocks(record.block_count);
  message.set_seed(record.seed);
}

}  // namespace

void EncodePool(const Engine& engine, v1::PoolState& message) {
  const SchedulerState state = engine.State();
  message.set_replica_id(state.replica_id.value());
  message.set_block_size(state.block_size);
  message.set_block_count(state.capacity_blocks);
  message.set_free_blocks(state.free_blocks);
  message.set_cached_blocks(state.cached_blocks);
  message.set_held_blocks(state.held_blocks);
  message.set_shared_blocks(state.shared_blocks);
  uint64_t held_tokens = 0;
  // Running requests are listed first, and only they hold blocks.
  for (const RequestRecord& record : engine.ListRequests(0, state.running_sequences)) {
    held_tokens += record.computed_token_count;
  }
  message.set_held_tokens(held_tokens);
  message.set_reserved_slots(state.waste.reserved);
  message.set_internal_waste_slots(state.waste.internal);
  message.set_external_waste_slots(state.waste.external);
}

void EncodeState(const Loop& loop, v1::GetSchedulerStateResponse& message) {
  const SchedulerState state = loop.engine().State();
  const EngineCounters& counters = state.counters;
  message.set_version(OCTAVO_VERSION);
  message.set_draining(loop.draining());
  v1::ReplicaState& replica = *message.add_replicas();
  replica.set_replica_id(state.replica_id.value());
  replica.set_epoch(state.epoch.value());
  replica.set_planned_step(state.last_planned_step.value());
  replica.set_applied_step(state.last_completed_step.value());
  replica.set_ready(loop.fleet().ready());
  replica.set_detail(loop.fleet().detail());
  if (const auto plan = loop.fleet().memory_plan())
    EncodeMemoryPlan(*plan, *replica.mutable_memory_plan());
  if (const auto pool = loop.fleet().pool_plan())
    EncodePoolPlan(*pool, *replica.mutable_pool_plan());
  replica.set_kv_dtype(loop.fleet().kv_dtype());
  EncodePool(loop.engine(), *message.add_pools());
  message.set_waiting_requests(state.waiting_requests);
  message.set_running_requests(state.running_sequences);
  message.set_paused_requests(state.paused_sequences);
  message.set_prefix_query_tokens(counters.prefix_queried_tokens);
  message.set_prefix_hit_tokens(counters.prefix_hit_tokens);
  message.set_prefix_in_flight_hit_tokens(counters.prefix_in_flight_hit_tokens);
  message.set_recent_prefix_hit_ratio(state.recent_prefix_hit_ratio);
  message.set_preemptions(counters.preemptions);
  message.set_prompt_tokens(counters.prompt_tokens);
  message.set_generation_tokens(counters.generated_tokens);
  message.set_ignored_results(counters.duplicate_results + counters.stale_results +
                              counters.unknown_results);
  message.set_resyncs(counters.resyncs);
}

void EncodeRequest(const RequestRecord& record, const SamplingParams* sampling, absl::Time now,
                   v1::RequestSummary& message) {
  message.set_request_id(record.client_request_id);
  bool computes_prompt = true;
  for (const SequenceRecord& sequence : record.sequences) {
    computes_prompt &= sequence.computed_token_count < record.prompt_token_count;
    EncodeSequence(record, sequence, *message.add_sequences());
  }
  message.set_state(EncodeRequestState(record.state, record.preemption_count > 0, computes_prompt));
  message.set_priority(record.priority);
  message.set_prompt_tokens(record.prompt_token_count);
  message.set_completion_tokens(record.output_token_count);
  message.set_cached_tokens(record.cached_token_count);
  message.set_computed_tokens(record.computed_token_count);
  message.set_max_tokens(record.max_output_token_count);
  message.set_blocks(record.block_count);
  message.set_preemptions(record.preemption_count);
  message.set_age_seconds(absl::ToDoubleSeconds(record.finished.value_or(now) - record.submitted));
  message.set_queue_seconds(absl::ToDoubleSeconds(
      record.admitted.value_or(record.finished.value_or(now)) - record.submitted));
  if (record.admitted) message.set_replica_id(record.replica_id.value());
  if (sampling != nullptr) wire::EncodeSampling(*sampling, *message.mutable_sampling());
  message.set_seed(record.seed);
}

void EncodeBlock(const BlockRecord& record, StepNumber completed, v1::BlockDescription& message) {
  message.set_block_id(record.block.value());
  message.set_state(EncodeBlockState(record.state));
  message.set_reference_count(record.reference_count);
  message.set_token_count(record.token_count);
  message.set_indexed(record.indexed);
  if (record.parent) message.set_parent_block_id(record.parent->value());
  if (record.valid_from > completed) message.set_valid_from_step(record.valid_from.value());
}

void EncodePoolMap(const PoolMap& map, const std::vector<RequestRecord>& holders, absl::Time now,
                   v1::GetPoolMapResponse& message) {
  absl::flat_hash_map<RequestId, uint32_t> index_of;
  for (const RequestRecord& record : holders) {
    index_of.emplace(record.request_id, static_cast<uint32_t>(message.requests_size()));
    EncodeRequest(record, nullptr, now, *message.add_requests());
  }
  message.set_blocks_per_cell(map.blocks_per_cell);
  for (const PoolCell& cell : map.cells) {
    v1::PoolCell& out = *message.add_cells();
    out.set_free_blocks(cell.free_count);
    out.set_cached_blocks(cell.cached_count);
    out.set_held_blocks(cell.held_count);
    out.set_shared_blocks(cell.shared_count);
    if (!cell.owner) continue;
    const auto owner = index_of.find(*cell.owner);
    if (owner != index_of.end()) out.set_request_index(owner->second);
  }
}

void EncodeStep(const StepRecord& record, bool with_tokens, v1::StepTraceEntry& message) {
  wire::EncodePlan(record.plan, *message.mutable_plan());
  if (record.result) {
    wire::EncodeResult(*record.result, *message.mutable_result());
    message.set_duration_us(
        static_cast<uint64_t>(absl::ToInt64Microseconds(record.completed - record.planned)));
  }
  if (with_tokens) return;
  message.mutable_plan()->clear_token_ids();
  for (v1::SequenceStart& start : *message.mutable_plan()->mutable_starts()) {
    start.clear_history_token_ids();
    start.mutable_sampling()->clear_logit_bias();
  }
  if (!record.result) return;
  for (v1::TokenOutcomes* outcomes :
       {message.mutable_result()->mutable_sampled(), message.mutable_result()->mutable_scored()}) {
    outcomes->clear_token_ids();
    outcomes->clear_top_token_ids();
  }
}

std::optional<BlockState> DecodeBlockState(v1::BlockState state) {
  switch (state) {
    case v1::BLOCK_STATE_FREE:
      return BlockState::kFree;
    case v1::BLOCK_STATE_CACHED:
      return BlockState::kCached;
    case v1::BLOCK_STATE_HELD:
      return BlockState::kHeld;
    default:
      return std::nullopt;
  }
}

}  // namespace octavo
