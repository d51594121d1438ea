#include "worker/exec/step_inputs.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

namespace octavo {
namespace {

void AppendTokens(const PlanRow& row, const TokenId* tokens, const MirroredSequence& state,
                  StepInputs& inputs) {
  const uint32_t first_token = inputs.token_count();
  const int32_t sequence = static_cast<int32_t>(inputs.sequences.size());
  const uint32_t given = row.token_count - (row.feeds_sampled ? 1 : 0);
  inputs.token_ids.insert(inputs.token_ids.end(), tokens, tokens + given);
  if (row.feeds_sampled) {
    inputs.fed_tokens.push_back({.token = inputs.token_count(), .slot = state.slot});
    inputs.token_ids.push_back(0);
  }
  for (uint32_t i = 0; i < row.token_count; ++i) {
    inputs.positions.push_back(static_cast<int32_t>(row.first_position + i));
    inputs.token_sequences.push_back(sequence);
  }
  inputs.sequences.push_back({.first_token = first_token,
                              .token_count = row.token_count,
                              .first_position = row.first_position,
                              .slot = state.slot});
}

// The row's tokens are the last of `inputs`, or those of the row whose logits it shares are.
void AppendLogitsRows(const PlanRow& row, const MirroredSequence& state, StepInputs& inputs,
                      StepLabel& label) {
  const uint32_t first_token = inputs.token_count() - row.token_count;
  const SamplingParams& sampling = state.sampling;
  if (row.scores) {
    for (uint32_t i = 0; i < row.token_count; ++i) {
      const uint32_t position = row.first_position + i + 1;
      if (position >= state.history.size()) break;
      inputs.logits_rows.push_back({.token = first_token + i,
                                    .slot = state.slot,
                                    .position = position,
                                    .target = state.history[position],
                                    .wants_logprob = true,
                                    .top_count = sampling.logprobs.value_or(0)});
      label.logits_sequences.push_back(row.sequence_id);
    }
  }
  if (row.samples) {
    const uint32_t position = row.first_position + row.token_count;
    const uint32_t output_tokens =
        position > state.prompt_token_count ? position - state.prompt_token_count : 0;
    inputs.logits_rows.push_back({.token = inputs.token_count() - 1,
                                  .slot = state.slot,
                                  .position = position,
                                  .samples = true,
                                  .wants_logprob = sampling.logprobs.has_value(),
                                  .top_count = sampling.logprobs.value_or(0),
                                  .stop_allowed = output_tokens >= sampling.min_tokens});
    label.logits_sequences.push_back(row.sequence_id);
  }
}

}  // namespace

void FillStepInputs(const StepPlan& plan, const SequenceTables& tables, StepInputs& inputs,
                    StepLabel& label) {
  inputs.groups.resize(tables.limits().layer_group_count);
  inputs.Clear();
  label = {.replica_id = plan.replica_id,
           .epoch = plan.epoch,
           .step = plan.step,
           .digests = tables.digests(),
           .logits_sequences = {}};
  for (const SequenceStart& start : plan.starts) {
    inputs.slot_starts.push_back(
        {.slot = tables.Find(start.sequence_id)->slot,
         .seed = start.seed,
         .prompt_token_count = start.prompt_token_count,
         .sampling = start.sampling,
         .history = start.sampling.needs_history() ? start.history : std::vector<TokenId>()});
  }
  const TokenId* tokens = plan.token_ids.data();
  for (const PlanRow& row : plan.rows) {
    const MirroredSequence& state = *tables.Find(row.sequence_id);
    if (!row.shares_logits) AppendTokens(row, tokens, state, inputs);
    AppendLogitsRows(row, state, inputs, label);
    if (row.shares_logits) continue;
    tokens += row.token_count - (row.feeds_sampled ? 1 : 0);
    for (size_t group = 0; group < inputs.groups.size(); ++group) {
      GroupInputs& group_inputs = inputs.groups[group];
      group_inputs.table_offsets.push_back(static_cast<int64_t>(group_inputs.block_tables.size()));
      for (BlockId block : state.tables[group]) group_inputs.block_tables.push_back(block.value());
    }
  }
  inputs.GroupLogitsRows();
  for (size_t group = 0; group < inputs.groups.size(); ++group) {
    for (const BlockCopy& copy : plan.layer_groups[group].copies) {
      inputs.groups[group].copies.push_back({.source = copy.source.value(),
                                             .destination = copy.destination.value(),
                                             .token_count = copy.token_count});
    }
  }
}

StepResult MakeStepResult(const StepLabel& label, const StepInputs& inputs,
                          const StepOutputs& outputs) {
  StepResult result{.replica_id = label.replica_id,
                    .epoch = label.epoch,
                    .step = label.step,
                    .digests = label.digests};
  absl::flat_hash_set<SequenceId> failed;
  for (size_t i = 0; i < outputs.outcomes.size(); ++i) {
    const SequenceId id = label.logits_sequences[i];
    if (!outputs.outcomes[i].finite && failed.insert(id).second) result.failed.push_back(id);
  }
  for (const bool samples : {true, false}) {
    std::vector<TokenOutcome>& list = samples ? result.sampled : result.scored;
    for (size_t i = 0; i < outputs.outcomes.size(); ++i) {
      const LogitsRow& row = inputs.logits_rows[i];
      const LogitsOutcome& outcome = outputs.outcomes[i];
      if (row.samples != samples || failed.contains(label.logits_sequences[i])) continue;
      list.push_back({.sequence_id = label.logits_sequences[i],
                      .position = row.position,
                      .token_id = outcome.token_id,
                      .logprob = outcome.logprob,
                      .top_count = static_cast<uint32_t>(outcome.top.size())});
      result.top.insert(result.top.end(), outcome.top.begin(), outcome.top.end());
    }
  }
  result.timings.forward_ns = outputs.forward_ns;
  result.timings.sample_ns = outputs.sample_ns;
  return result;
}

}  // namespace octavo
