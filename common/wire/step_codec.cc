#include "common/wire/step_codec.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace octavo::wire {
namespace {

constexpr uint32_t kMaxTokenId = static_cast<uint32_t>(std::numeric_limits<TokenId>::max());
constexpr uint32_t kAllRowFlags = v1::ROW_FLAG_SAMPLES | v1::ROW_FLAG_FEEDS_SAMPLED |
                                  v1::ROW_FLAG_SCORES | v1::ROW_FLAG_SHARES_LOGITS;

absl::Status LengthMismatch(absl::string_view column, size_t length, absl::string_view what,
                            size_t expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(column, " has ", length, " entries; ", what, " call for ", expected));
}

absl::StatusOr<TokenId> DecodeToken(absl::string_view column, uint32_t id) {
  if (id > kMaxTokenId) {
    return absl::InvalidArgumentError(
        absl::StrCat(column, " holds ", id, "; token ids go up to ", kMaxTokenId));
  }
  return static_cast<TokenId>(id);
}

template <typename Field>
absl::Status DecodeTokens(absl::string_view column, const Field& field,
                          std::vector<TokenId>& tokens) {
  tokens.reserve(field.size());
  for (uint32_t id : field) {
    OCTAVO_ASSIGN_OR_RETURN(const TokenId token, DecodeToken(column, id));
    tokens.push_back(token);
  }
  return absl::OkStatus();
}

template <typename Values, typename Field>
void EncodeIds(const Values& values, Field* field) {
  field->Reserve(static_cast<int>(values.size()));
  for (const auto& value : values) field->AddAlreadyReserved(value.value());
}

void EncodeGroup(const LayerGroupChange& group, v1::LayerGroupChange& message) {
  message.set_layer_group(group.layer_group.value());
  message.mutable_new_block_counts()->Add(group.new_block_counts.begin(),
                                          group.new_block_counts.end());
  EncodeIds(group.new_blocks, message.mutable_new_block_ids());
  for (const TableEntryChange& change : group.entry_changes) {
    message.add_changed_sequence_ids(change.sequence_id.value());
    message.add_changed_indexes(change.index);
    message.add_changed_block_ids(change.block.value());
  }
  for (const BlockCopy& copy : group.copies) {
    message.add_copy_source_block_ids(copy.source.value());
    message.add_copy_destination_block_ids(copy.destination.value());
    message.add_copy_token_counts(copy.token_count);
  }
  message.set_digest(group.digest);
}

absl::StatusOr<LayerGroupChange> DecodeGroup(const v1::LayerGroupChange& message,
                                             size_t row_count) {
  LayerGroupChange group;
  group.layer_group = LayerGroup(message.layer_group());
  if (static_cast<size_t>(message.new_block_counts_size()) != row_count) {
    return LengthMismatch("new_block_counts", message.new_block_counts_size(), "sequence_ids",
                          row_count);
  }
  group.new_block_counts.assign(message.new_block_counts().begin(),
                                message.new_block_counts().end());
  uint64_t new_blocks = 0;
  for (uint32_t count : group.new_block_counts) new_blocks += count;
  if (static_cast<uint64_t>(message.new_block_ids_size()) != new_blocks) {
    return LengthMismatch("new_block_ids", message.new_block_ids_size(), "new_block_counts",
                          new_blocks);
  }
  group.new_blocks.reserve(new_blocks);
  for (uint32_t id : message.new_block_ids()) group.new_blocks.emplace_back(id);

  const int changes = message.changed_sequence_ids_size();
  if (message.changed_indexes_size() != changes) {
    return LengthMismatch("changed_indexes", message.changed_indexes_size(), "changed_sequence_ids",
                          changes);
  }
  if (message.changed_block_ids_size() != changes) {
    return LengthMismatch("changed_block_ids", message.changed_block_ids_size(),
                          "changed_sequence_ids", changes);
  }
  for (int i = 0; i < changes; ++i) {
    group.entry_changes.push_back({.sequence_id = SequenceId(message.changed_sequence_ids(i)),
                                   .index = message.changed_indexes(i),
                                   .block = BlockId(message.changed_block_ids(i))});
  }
  const int copies = message.copy_source_block_ids_size();
  if (message.copy_destination_block_ids_size() != copies) {
    return LengthMismatch("copy_destination_block_ids", message.copy_destination_block_ids_size(),
                          "copy_source_block_ids", copies);
  }
  if (message.copy_token_counts_size() != copies) {
    return LengthMismatch("copy_token_counts", message.copy_token_counts_size(),
                          "copy_source_block_ids", copies);
  }
  for (int i = 0; i < copies; ++i) {
    group.copies.push_back({.source = BlockId(message.copy_source_block_ids(i)),
                            .destination = BlockId(message.copy_destination_block_ids(i)),
                            .token_count = message.copy_token_counts(i)});
  }
  group.digest = message.digest();
  return group;
}

// Writes outcomes and their alternatives, which start at `top`; returns where the next outcomes'
// alternatives start.
size_t EncodeOutcomes(const std::vector<TokenOutcome>& outcomes,
                      const std::vector<TokenLogprob>& tops, size_t top,
                      v1::TokenOutcomes& message) {
  for (const TokenOutcome& outcome : outcomes) {
    message.add_sequence_ids(outcome.sequence_id.value());
    message.add_positions(outcome.position);
    message.add_token_ids(static_cast<uint32_t>(outcome.token_id));
    message.add_logprobs(outcome.logprob);
    message.add_top_counts(outcome.top_count);
    for (const size_t end = top + outcome.top_count; top < end; ++top) {
      message.add_top_token_ids(static_cast<uint32_t>(tops[top].token_id));
      message.add_top_logprobs(tops[top].logprob);
    }
  }
  return top;
}

absl::Status DecodeOutcomes(const v1::TokenOutcomes& message, std::vector<TokenOutcome>& outcomes,
                            std::vector<TokenLogprob>& tops) {
  const int count = message.sequence_ids_size();
  for (const auto& [column, length] : {std::pair{"positions", message.positions_size()},
                                       {"token_ids", message.token_ids_size()},
                                       {"logprobs", message.logprobs_size()},
                                       {"top_counts", message.top_counts_size()}}) {
    if (length != count) return LengthMismatch(column, length, "sequence_ids", count);
  }
  uint64_t top_count = 0;
  for (uint32_t value : message.top_counts()) top_count += value;
  if (static_cast<uint64_t>(message.top_token_ids_size()) != top_count) {
    return LengthMismatch("top_token_ids", message.top_token_ids_size(), "top_counts", top_count);
  }
  if (static_cast<uint64_t>(message.top_logprobs_size()) != top_count) {
    return LengthMismatch("top_logprobs", message.top_logprobs_size(), "top_counts", top_count);
  }
  outcomes.reserve(count);
  for (int i = 0; i < count; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(const TokenId token, DecodeToken("token_ids", message.token_ids(i)));
    outcomes.push_back({.sequence_id = SequenceId(message.sequence_ids(i)),
                        .position = message.positions(i),
                        .token_id = token,
                        .logprob = message.logprobs(i),
                        .top_count = message.top_counts(i)});
  }
  for (int i = 0; i < message.top_token_ids_size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(const TokenId token,
                            DecodeToken("top_token_ids", message.top_token_ids(i)));
    tops.push_back({.token_id = token, .logprob = message.top_logprobs(i)});
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeSampling(const SamplingParams& params, v1::SamplingParams& message) {
  message.set_temperature(params.temperature);
  message.set_top_k(params.top_k);
  message.set_top_p(params.top_p);
  message.set_min_p(params.min_p);
  message.set_repetition_penalty(params.repetition_penalty);
  message.set_presence_penalty(params.presence_penalty);
  message.set_frequency_penalty(params.frequency_penalty);
  for (const auto& [token, bias] : params.logit_bias) {
    (*message.mutable_logit_bias())[static_cast<uint32_t>(token)] = bias;
  }
  message.set_min_tokens(params.min_tokens);
  for (TokenId token : params.stop_token_ids) {
    message.add_stop_token_ids(static_cast<uint32_t>(token));
  }
  if (params.logprobs.has_value()) message.set_logprobs(*params.logprobs);
}

absl::StatusOr<SamplingParams> DecodeSampling(const v1::SamplingParams& message) {
  SamplingParams params;
  if (message.has_temperature()) params.temperature = message.temperature();
  if (message.has_top_k()) params.top_k = message.top_k();
  if (message.has_top_p()) params.top_p = message.top_p();
  if (message.has_min_p()) params.min_p = message.min_p();
  if (message.has_repetition_penalty()) params.repetition_penalty = message.repetition_penalty();
  if (message.has_presence_penalty()) params.presence_penalty = message.presence_penalty();
  if (message.has_frequency_penalty()) params.frequency_penalty = message.frequency_penalty();
  for (const auto& [id, bias] : message.logit_bias()) {
    OCTAVO_ASSIGN_OR_RETURN(const TokenId token, DecodeToken("logit_bias", id));
    params.logit_bias.emplace_back(token, bias);
  }
  // A map has no order of its own; the value has: by token id.
  std::sort(params.logit_bias.begin(), params.logit_bias.end());
  if (message.has_min_tokens()) params.min_tokens = message.min_tokens();
  OCTAVO_RETURN_IF_ERROR(
      DecodeTokens("stop_token_ids", message.stop_token_ids(), params.stop_token_ids));
  if (message.has_logprobs()) params.logprobs = message.logprobs();
  return params;
}

void EncodePlan(const StepPlan& plan, v1::StepPlan& message) {
  message.set_replica_id(plan.replica_id.value());
  message.set_epoch(plan.epoch.value());
  message.set_step(plan.step.value());
  message.set_resets_state(plan.resets_state);
  EncodeIds(plan.releases, message.mutable_released_sequence_ids());
  for (const SequenceStart& start : plan.starts) {
    v1::SequenceStart& out = *message.add_starts();
    out.set_sequence_id(start.sequence_id.value());
    EncodeSampling(start.sampling, *out.mutable_sampling());
    out.set_seed(start.seed);
    out.set_prompt_token_count(start.prompt_token_count);
    out.mutable_history_token_ids()->Add(start.history.begin(), start.history.end());
  }
  const int rows = static_cast<int>(plan.rows.size());
  message.mutable_sequence_ids()->Reserve(rows);
  message.mutable_first_positions()->Reserve(rows);
  message.mutable_token_counts()->Reserve(rows);
  message.mutable_row_flags()->Reserve(rows);
  for (const PlanRow& row : plan.rows) {
    message.mutable_sequence_ids()->AddAlreadyReserved(row.sequence_id.value());
    message.mutable_first_positions()->AddAlreadyReserved(row.first_position);
    message.mutable_token_counts()->AddAlreadyReserved(row.token_count);
    message.mutable_row_flags()->AddAlreadyReserved(
        (row.samples ? v1::ROW_FLAG_SAMPLES : 0) |
        (row.feeds_sampled ? v1::ROW_FLAG_FEEDS_SAMPLED : 0) |
        (row.scores ? v1::ROW_FLAG_SCORES : 0) |
        (row.shares_logits ? v1::ROW_FLAG_SHARES_LOGITS : 0));
  }
  message.mutable_token_ids()->Add(plan.token_ids.begin(), plan.token_ids.end());
  for (const LayerGroupChange& group : plan.layer_groups) {
    EncodeGroup(group, *message.add_layer_groups());
  }
}

absl::StatusOr<StepPlan> DecodePlan(const v1::StepPlan& message) {
  StepPlan plan;
  plan.replica_id = ReplicaId(message.replica_id());
  plan.epoch = Epoch(message.epoch());
  plan.step = StepNumber(message.step());
  plan.resets_state = message.resets_state();
  for (uint64_t id : message.released_sequence_ids()) plan.releases.emplace_back(id);
  for (const v1::SequenceStart& start : message.starts()) {
    SequenceStart& out = plan.starts.emplace_back();
    out.sequence_id = SequenceId(start.sequence_id());
    out.seed = start.seed();
    out.prompt_token_count = start.prompt_token_count();
    OCTAVO_ASSIGN_OR_RETURN(out.sampling, DecodeSampling(start.sampling()));
    OCTAVO_RETURN_IF_ERROR(
        DecodeTokens("history_token_ids", start.history_token_ids(), out.history));
  }
  const int rows = message.sequence_ids_size();
  for (const auto& [column, length] : {std::pair{"first_positions", message.first_positions_size()},
                                       {"token_counts", message.token_counts_size()},
                                       {"row_flags", message.row_flags_size()}}) {
    if (length != rows) return LengthMismatch(column, length, "sequence_ids", rows);
  }
  uint64_t inputs = 0;
  plan.rows.reserve(rows);
  for (int i = 0; i < rows; ++i) {
    const uint32_t flags = message.row_flags(i);
    const uint32_t token_count = message.token_counts(i);
    if ((flags & ~kAllRowFlags) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("row_flags holds ", flags, "; known bits are ", kAllRowFlags));
    }
    const bool shares_logits = (flags & v1::ROW_FLAG_SHARES_LOGITS) != 0;
    if ((token_count == 0) != shares_logits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token_counts[", i, "] is ", token_count,
          shares_logits ? "; a row that shares logits computes none"
                        : "; a row computes at least 1 token, unless it shares logits"));
    }
    if (shares_logits && (flags & v1::ROW_FLAG_FEEDS_SAMPLED) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("row_flags[", i, "] is ", flags,
                                                     "; a row that shares logits feeds no token"));
    }
    PlanRow row{.sequence_id = SequenceId(message.sequence_ids(i)),
                .first_position = message.first_positions(i),
                .token_count = token_count,
                .samples = (flags & v1::ROW_FLAG_SAMPLES) != 0,
                .feeds_sampled = (flags & v1::ROW_FLAG_FEEDS_SAMPLED) != 0,
                .scores = (flags & v1::ROW_FLAG_SCORES) != 0,
                .shares_logits = shares_logits};
    inputs += token_count - (row.feeds_sampled ? 1 : 0);
    plan.rows.push_back(row);
  }
  if (static_cast<uint64_t>(message.token_ids_size()) != inputs) {
    return LengthMismatch("token_ids", message.token_ids_size(), "token_counts and row_flags",
                          inputs);
  }
  OCTAVO_RETURN_IF_ERROR(DecodeTokens("token_ids", message.token_ids(), plan.token_ids));
  for (const v1::LayerGroupChange& group : message.layer_groups()) {
    OCTAVO_ASSIGN_OR_RETURN(LayerGroupChange change, DecodeGroup(group, plan.rows.size()));
    plan.layer_groups.push_back(std::move(change));
  }
  return plan;
}

void EncodeResult(const StepResult& result, v1::StepResult& message) {
  message.set_replica_id(result.replica_id.value());
  message.set_epoch(result.epoch.value());
  message.set_step(result.step.value());
  message.set_rank(result.rank);
  message.mutable_digests()->Add(result.digests.begin(), result.digests.end());
  const size_t top = EncodeOutcomes(result.sampled, result.top, 0, *message.mutable_sampled());
  if (!result.scored.empty()) {
    EncodeOutcomes(result.scored, result.top, top, *message.mutable_scored());
  }
  EncodeIds(result.failed, message.mutable_failed_sequence_ids());
  message.mutable_timings()->set_prepare_ns(result.timings.prepare_ns);
  message.mutable_timings()->set_forward_ns(result.timings.forward_ns);
  message.mutable_timings()->set_sample_ns(result.timings.sample_ns);
}

absl::StatusOr<StepResult> DecodeResult(const v1::StepResult& message) {
  StepResult result;
  result.replica_id = ReplicaId(message.replica_id());
  result.epoch = Epoch(message.epoch());
  result.step = StepNumber(message.step());
  result.rank = message.rank();
  result.digests.assign(message.digests().begin(), message.digests().end());
  OCTAVO_RETURN_IF_ERROR(DecodeOutcomes(message.sampled(), result.sampled, result.top));
  OCTAVO_RETURN_IF_ERROR(DecodeOutcomes(message.scored(), result.scored, result.top));
  for (uint64_t id : message.failed_sequence_ids()) result.failed.emplace_back(id);
  result.timings = {.prepare_ns = message.timings().prepare_ns(),
                    .forward_ns = message.timings().forward_ns(),
                    .sample_ns = message.timings().sample_ns()};
  return result;
}

}  // namespace octavo::wire
