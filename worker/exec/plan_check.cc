#include "worker/exec/plan_check.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "common/table_digest.h"

namespace octavo {
namespace {

template <typename... Parts>
absl::Status Malformed(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

absl::Status PlanCheck::Run() {
  OCTAVO_RETURN_IF_ERROR(CheckReleases());
  OCTAVO_RETURN_IF_ERROR(CheckStarts());
  OCTAVO_RETURN_IF_ERROR(CheckRows());
  OCTAVO_RETURN_IF_ERROR(CheckTokens());
  if (plan_.layer_groups.size() != limits_.layer_group_count) {
    return Malformed("layer_groups holds ", plan_.layer_groups.size(), " entries; the model has ",
                     limits_.layer_group_count, " layer groups");
  }
  for (size_t group = 0; group < plan_.layer_groups.size(); ++group) {
    OCTAVO_RETURN_IF_ERROR(CheckGroup(group));
  }
  // Last, so that a malformed plan is told what is wrong with it rather than that its sum differs.
  for (size_t group = 0; group < plan_.layer_groups.size(); ++group) {
    OCTAVO_RETURN_IF_ERROR(CheckDigest(plan_.layer_groups[group], group));
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckReleases() {
  for (SequenceId id : plan_.releases) {
    if (plan_.resets_state || !sequences_.contains(id)) {
      return Malformed("releases names sequence ", id.value(), ", which the worker does not hold");
    }
    if (!released_.insert(id).second)
      return Malformed("releases names sequence ", id.value(), " twice");
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckStarts() {
  for (const SequenceStart& start : plan_.starts) {
    const bool known = !plan_.resets_state && sequences_.contains(start.sequence_id) &&
                       !released_.contains(start.sequence_id);
    if (known)
      return Malformed("starts names sequence ", start.sequence_id.value(),
                       ", which the worker holds already");
    if (!started_.emplace(start.sequence_id, &start).second) {
      return Malformed("starts names sequence ", start.sequence_id.value(), " twice");
    }
    OCTAVO_RETURN_IF_ERROR(CheckStart(start));
  }
  const size_t kept = plan_.resets_state ? 0 : sequences_.size() - released_.size();
  if (kept + started_.size() > limits_.max_sequences) {
    return Malformed("the plan leaves ", kept + started_.size(),
                     " sequences; the worker holds at most ", limits_.max_sequences);
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckStart(const SequenceStart& start) const {
  const auto check_token = [&](const char* field, TokenId token) {
    if (token >= 0 && static_cast<uint32_t>(token) < limits_.vocab_size) return absl::OkStatus();
    return Malformed(field, " of sequence ", start.sequence_id.value(), " holds token ", token,
                     "; the vocabulary has ", limits_.vocab_size);
  };
  for (TokenId token : start.history) OCTAVO_RETURN_IF_ERROR(check_token("history", token));
  const SamplingParams& sampling = start.sampling;
  for (TokenId token : sampling.stop_token_ids)
    OCTAVO_RETURN_IF_ERROR(check_token("stop_token_ids", token));
  for (const auto& [token, bias] : sampling.logit_bias) {
    OCTAVO_RETURN_IF_ERROR(check_token("logit_bias", token));
    if (std::isnan(bias)) return Malformed("logit_bias of token ", token, " is not a number");
  }
  if (sampling.logprobs.value_or(0) > kMaxStepTopLogprobs) {
    return Malformed("logprobs of sequence ", start.sequence_id.value(), " is ", *sampling.logprobs,
                     "; at most ", kMaxStepTopLogprobs);
  }
  if (!(sampling.temperature >= 0) || !(sampling.top_p > 0 && sampling.top_p <= 1) ||
      !(sampling.min_p >= 0 && sampling.min_p <= 1) || !(sampling.repetition_penalty > 0) ||
      std::isnan(sampling.presence_penalty) || std::isnan(sampling.frequency_penalty)) {
    return Malformed("sampling of sequence ", start.sequence_id.value(),
                     " is out of range: temperature ", sampling.temperature, ", top_p ",
                     sampling.top_p, ", min_p ", sampling.min_p, ", repetition_penalty ",
                     sampling.repetition_penalty, ", presence_penalty ", sampling.presence_penalty,
                     ", frequency_penalty ", sampling.frequency_penalty);
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanCheck::View> PlanCheck::Find(SequenceId id) const {
  View view;
  if (const auto started = started_.find(id); started != started_.end()) {
    view.start = started->second;
  } else if (const auto known = sequences_.find(id);
             known != sequences_.end() && !plan_.resets_state && !released_.contains(id)) {
    view.state = &known->second;
  } else {
    return Malformed("the plan names sequence ", id.value(), ", which was not started");
  }
  if (const auto row = row_of_.find(id); row != row_of_.end()) view.row = row->second;
  return view;
}

absl::Status PlanCheck::CheckRows() {
  row_views_.reserve(plan_.rows.size());
  const PlanRow* computed = nullptr;
  for (size_t row = 0; row < plan_.rows.size(); ++row) {
    const SequenceId id = plan_.rows[row].sequence_id;
    if (!row_of_.emplace(id, static_cast<uint32_t>(row)).second) {
      return Malformed("rows names sequence ", id.value(), " twice");
    }
    OCTAVO_ASSIGN_OR_RETURN(const View view, Find(id));
    OCTAVO_RETURN_IF_ERROR(CheckRow(row, view));
    if (plan_.rows[row].shares_logits) {
      OCTAVO_RETURN_IF_ERROR(CheckSharedLogits(plan_.rows[row], computed));
    } else {
      computed = &plan_.rows[row];
    }
    row_views_.push_back(view);
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckSharedLogits(const PlanRow& row, const PlanRow* computed) const {
  const uint64_t id = row.sequence_id.value();
  if (row.token_count > 0 || !row.samples || row.feeds_sampled || row.scores) {
    return Malformed("the row of sequence ", id,
                     " shares logits: it computes and scores no token, feeds none and samples");
  }
  if (computed == nullptr || !computed->samples ||
      uint64_t{computed->first_position} + computed->token_count != row.first_position) {
    return Malformed("the row of sequence ", id, " samples position ", row.first_position,
                     " from shared logits, but no row above it that computes tokens ends there and "
                     "samples");
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckRow(size_t index, const View& view) const {
  const PlanRow& row = plan_.rows[index];
  const uint64_t id = row.sequence_id.value();
  const uint64_t end = uint64_t{row.first_position} + row.token_count;
  if (row.token_count == 0 && !row.shares_logits) {
    return Malformed("token_count of sequence ", id,
                     " is 0; it must be at least 1, unless the row shares logits");
  }
  if (end > limits_.max_positions) {
    return Malformed("the row of sequence ", id, " ends at position ", end, "; the model ends at ",
                     limits_.max_positions);
  }
  const std::optional<uint32_t> computed_end =
      view.state == nullptr ? std::nullopt : view.state->computed_end;
  if (computed_end && row.first_position > *computed_end) {
    return Malformed("first_position of sequence ", id, " is ", row.first_position,
                     "; only tokens before ", *computed_end, " are computed");
  }
  if (row.feeds_sampled && (view.state == nullptr || view.state->sampled_position != end - 1)) {
    return Malformed("the row of sequence ", id, " feeds the token sampled for position ", end - 1,
                     ", but none was sampled there");
  }
  if (row.scores && !view.HasHistory()) {
    return Malformed("the row of sequence ", id,
                     " scores its inputs, but the sequence was started without history");
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckTokens() const {
  uint64_t tokens = 0, given = 0;
  for (const PlanRow& row : plan_.rows) {
    tokens += row.token_count;
    given += row.token_count - (row.feeds_sampled ? 1 : 0);
  }
  if (tokens > limits_.max_tokens_per_step) {
    return Malformed("the plan computes ", tokens, " tokens; a step computes at most ",
                     limits_.max_tokens_per_step);
  }
  if (plan_.token_ids.size() != given) {
    return Malformed("token_ids holds ", plan_.token_ids.size(), " tokens; the rows ask for ",
                     given);
  }
  for (TokenId token : plan_.token_ids) {
    if (token < 0 || static_cast<uint32_t>(token) >= limits_.vocab_size) {
      return Malformed("token_ids holds ", token, "; the vocabulary has ", limits_.vocab_size);
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckBlock(const char* what, BlockId block) const {
  if (block.value() < limits_.num_blocks) return absl::OkStatus();
  return Malformed(what, " names block ", block.value(), "; the pool has ", limits_.num_blocks);
}

absl::Status PlanCheck::CheckGroup(size_t group) {
  const LayerGroupChange& change = plan_.layer_groups[group];
  if (change.layer_group.value() != group) {
    return Malformed("layer_groups[", group, "] is layer group ", change.layer_group.value(),
                     "; they come in order");
  }
  if (change.new_block_counts.size() != plan_.rows.size()) {
    return Malformed("new_block_counts holds ", change.new_block_counts.size(), " entries for ",
                     plan_.rows.size(), " rows");
  }
  block_begins_.assign(1, 0);
  for (uint32_t count : change.new_block_counts)
    block_begins_.push_back(block_begins_.back() + count);
  if (change.new_blocks.size() != block_begins_.back()) {
    return Malformed("new_blocks holds ", change.new_blocks.size(),
                     " blocks; new_block_counts add up to ", block_begins_.back());
  }
  for (BlockId block : change.new_blocks) OCTAVO_RETURN_IF_ERROR(CheckBlock("new_blocks", block));
  OCTAVO_RETURN_IF_ERROR(CheckEntryChanges(change, group));
  OCTAVO_RETURN_IF_ERROR(CheckCoverage(change, group));
  return CheckCopies(change);
}

absl::Status PlanCheck::CheckEntryChanges(const LayerGroupChange& change, size_t group) {
  changed_.clear();
  for (const TableEntryChange& entry : change.entry_changes) {
    OCTAVO_ASSIGN_OR_RETURN(const View view, Find(entry.sequence_id));
    const uint64_t appended = view.row < 0 ? 0 : change.new_block_counts[view.row];
    const uint64_t size = view.TableSize(group) + appended;
    if (entry.index >= size) {
      return Malformed("entry_changes names entry ", entry.index, " of sequence ",
                       entry.sequence_id.value(), ", whose table has ", size);
    }
    OCTAVO_RETURN_IF_ERROR(CheckBlock("entry_changes", entry.block));
    if (!changed_.emplace(std::pair(entry.sequence_id, entry.index), entry.block).second) {
      return Malformed("entry_changes names entry ", entry.index, " of sequence ",
                       entry.sequence_id.value(), " twice");
    }
  }
  return absl::OkStatus();
}

BlockId PlanCheck::EntryBefore(const LayerGroupChange& change, const View& view, size_t group,
                               uint32_t index) const {
  const size_t size = view.TableSize(group);
  if (index < size) return view.state->tables[group][index];
  return change.new_blocks[block_begins_[view.row] + (index - size)];
}

absl::Status PlanCheck::CheckCoverage(const LayerGroupChange& change, size_t group) {
  // Two rows that write one block would overwrite each other's tokens.
  absl::flat_hash_map<BlockId, SequenceId> writers;
  for (size_t row = 0; row < plan_.rows.size(); ++row) {
    const PlanRow& plan_row = plan_.rows[row];
    const View& view = row_views_[row];
    const uint64_t size = view.TableSize(group) + change.new_block_counts[row];
    const uint32_t first = plan_row.first_position / limits_.block_size;
    const uint32_t last = (plan_row.first_position + plan_row.token_count - 1) / limits_.block_size;
    if (const uint64_t most = limits_.max_table_blocks(); size > most) {
      return Malformed("the table of sequence ", plan_row.sequence_id.value(), " grows to ", size,
                       " blocks; the model's length takes at most ", most);
    }
    if (last >= size) {
      return Malformed("the row of sequence ", plan_row.sequence_id.value(), " reaches block ",
                       last, " of its table, which has ", size);
    }
    if (plan_row.token_count == 0) continue;  // writes nothing
    for (uint32_t index = first; index <= last; ++index) {
      const auto change_it = changed_.find(std::pair(plan_row.sequence_id, index));
      const BlockId block =
          change_it != changed_.end() ? change_it->second : EntryBefore(change, view, group, index);
      const auto [writer, added] = writers.emplace(block, plan_row.sequence_id);
      if (!added) {
        return Malformed("block ", block.value(), " is written by sequence ",
                         writer->second.value(), " and by sequence ", plan_row.sequence_id.value());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckCopies(const LayerGroupChange& change) const {
  absl::flat_hash_set<BlockId> destinations;
  for (const BlockCopy& copy : change.copies) {
    OCTAVO_RETURN_IF_ERROR(CheckBlock("copies", copy.source));
    OCTAVO_RETURN_IF_ERROR(CheckBlock("copies", copy.destination));
    if (copy.token_count < 1 || copy.token_count > limits_.block_size) {
      return Malformed("copies moves ", copy.token_count, " tokens; it must be 1 to ",
                       limits_.block_size);
    }
    if (copy.source == copy.destination)
      return Malformed("copies copies block ", copy.source.value(), " to itself");
    if (!destinations.insert(copy.destination).second) {
      return Malformed("copies writes block ", copy.destination.value(), " twice");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckDigest(const LayerGroupChange& change, size_t group) const {
  uint64_t digest = plan_.resets_state ? 0 : digests_[group];
  for (SequenceId id : released_) digest -= sequences_.at(id).digests[group];
  size_t next = 0;
  absl::flat_hash_map<std::pair<SequenceId, uint32_t>, BlockId> appended;
  for (size_t row = 0; row < plan_.rows.size(); ++row) {
    const SequenceId id = plan_.rows[row].sequence_id;
    uint32_t index = static_cast<uint32_t>(row_views_[row].TableSize(group));
    for (uint32_t i = 0; i < change.new_block_counts[row]; ++i, ++index, ++next) {
      digest += EntryDigest(id, index, change.new_blocks[next]);
      if (!change.entry_changes.empty())
        appended.emplace(std::pair(id, index), change.new_blocks[next]);
    }
  }
  for (const TableEntryChange& entry : change.entry_changes) {
    const auto fresh = appended.find(std::pair(entry.sequence_id, entry.index));
    const BlockId before = fresh != appended.end()
                               ? fresh->second
                               : sequences_.at(entry.sequence_id).tables[group][entry.index];
    digest -= EntryDigest(entry.sequence_id, entry.index, before);
    digest += EntryDigest(entry.sequence_id, entry.index, entry.block);
  }
  if (digest == change.digest) return absl::OkStatus();
  const std::string mine = absl::StrFormat("0x%016x", digest);
  const std::string theirs = absl::StrFormat("0x%016x", change.digest);
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "after step ", plan_.step.value(), " the tables of layer group ", group, " have digest ",
          mine, "; the plan says ", theirs, ": resynchronise with a plan that resets the state")),
      "DIGEST_MISMATCH", {{"worker_digest", mine}, {"plan_digest", theirs}});
}

}  // namespace octavo
