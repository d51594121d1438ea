#include "tests/sim/simulated_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/status.h"
#include "common/table_digest.h"

namespace octavo {
namespace {

constexpr uint64_t kEmptyState = 0x0C7A70;
constexpr uint64_t kPoison = 0xBADBADBADBADBADB;

// What slot `position` holds: its token after what the slot before it holds, so after everything
// before it.
uint64_t SlotValue(TokenId token, uint32_t position, uint64_t previous_slot) {
  if (previous_slot == kPoison) return kPoison;
  return Mix64(Mix64(previous_slot ^ static_cast<uint32_t>(token)) ^ position);
}
// What attention makes of one slot more.
uint64_t NextState(uint64_t state, uint64_t slot) {
  return state == kPoison || slot == kPoison ? kPoison : Mix64(state + 3 * slot);
}

uint64_t StateAfter(std::span<const TokenId> tokens) {
  uint64_t state = kEmptyState;
  uint64_t slot = kEmptyState;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    slot = SlotValue(tokens[i], i, slot);
    state = NextState(state, slot);
  }
  return state;
}

TokenId Sample(uint64_t state, uint64_t seed, uint32_t vocabulary) {
  return static_cast<TokenId>(Mix64(state ^ seed) % vocabulary);
}

float Score(uint64_t state, TokenId token) {
  return -static_cast<float>(Mix64(state ^ static_cast<uint32_t>(token)) % 1024) / 64;
}

// Few different values, so that there are ties.
std::vector<TokenLogprob> TopAfter(uint64_t state, uint32_t count, uint32_t vocabulary) {
  if (count == 0) return {};
  std::vector<TokenLogprob> top;
  for (uint32_t token = 0; token < vocabulary; ++token) {
    const auto id = static_cast<TokenId>(token);
    top.push_back({id, -static_cast<float>(1 + Mix64(state ^ Mix64(token)) % 24) / 8});
  }
  std::stable_sort(top.begin(), top.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob;
  });
  top.resize(std::min<size_t>(count, top.size()));
  return top;
}

}  // namespace

std::vector<TokenLogprob> ExpectedTop(std::span<const TokenId> tokens, uint32_t count,
                                      uint32_t vocabulary) {
  return TopAfter(StateAfter(tokens), count, vocabulary);
}

TokenId ExpectedToken(std::span<const TokenId> tokens, uint64_t seed, uint32_t vocabulary) {
  return Sample(StateAfter(tokens), seed, vocabulary);
}

float ExpectedScore(std::span<const TokenId> tokens, uint32_t position) {
  return Score(StateAfter(tokens.first(position)), tokens[position]);
}

SimulatedWorker::SimulatedWorker(Epoch epoch, const KvLayout& layout, uint32_t block_count,
                                 uint32_t vocabulary)
    : epoch_(epoch),
      layout_(layout),
      vocabulary_(vocabulary),
      slots_(size_t{block_count} * layout.block_size) {}

uint64_t& SimulatedWorker::Slot(const Sequence& sequence, uint32_t position) {
  const BlockId block = sequence.table.at(layout_.BlockIndex(position));
  return slots_.at(size_t{block.value()} * layout_.block_size + layout_.Offset(position));
}

absl::Status SimulatedWorker::ApplyTables(const StepPlan& plan, Tables& sequences) const {
  if (plan.resets_state) sequences.clear();
  for (const SequenceId id : plan.releases) {
    if (sequences.erase(id) == 0) {
      return absl::InternalError(absl::StrCat("sequence ", id.value(), " is released, unknown"));
    }
  }
  for (const SequenceStart& start : plan.starts) {
    const Sequence sequence{.seed = start.seed,
                            .prompt_token_count = start.prompt_token_count,
                            .needs_history = start.sampling.needs_history(),
                            .top_count = start.sampling.logprobs.value_or(0),
                            .history = start.history};
    if (!sequences.emplace(start.sequence_id, sequence).second) {
      return absl::InternalError(
          absl::StrCat("sequence ", start.sequence_id.value(), " is started twice"));
    }
  }
  const LayerGroupChange& change = plan.layer_groups.at(0);
  size_t next = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const auto sequence = sequences.find(plan.rows[i].sequence_id);
    if (sequence == sequences.end()) {
      return absl::InternalError(absl::StrCat("row ", i, " is of an unknown sequence, ",
                                              plan.rows[i].sequence_id.value()));
    }
    for (uint32_t n = change.new_block_counts.at(i); n > 0; --n) {
      sequence->second.table.push_back(change.new_blocks.at(next++));
    }
  }
  for (const TableEntryChange& entry : change.entry_changes) {
    sequences.at(entry.sequence_id).table.at(entry.index) = entry.block;
  }
  if (next != change.new_blocks.size()) return absl::InternalError("new blocks are left over");
  uint64_t digest = 0;
  for (const auto& [id, sequence] : sequences) {
    for (uint32_t i = 0; i < sequence.table.size(); ++i) {
      digest += EntryDigest(id, i, sequence.table[i]);
    }
  }
  if (digest != change.digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("digest mismatch at step ", plan.step.value()));
  }
  return absl::OkStatus();
}

absl::Status SimulatedWorker::ApplyCopies(std::span<const BlockCopy> copies) {
  const uint32_t block_size = layout_.block_size;
  std::vector<uint64_t> before;
  for (const BlockCopy& copy : copies) {
    const size_t source = size_t{copy.source.value()} * block_size;
    const size_t destination = size_t{copy.destination.value()} * block_size;
    if (copy.token_count < 1 || copy.token_count > block_size || source == destination ||
        std::max(source, destination) >= slots_.size()) {
      return absl::InternalError(absl::StrCat("copies ", copy.token_count, " tokens of block ",
                                              copy.source.value(), " to block ",
                                              copy.destination.value()));
    }
    const auto first = slots_.begin() + static_cast<std::ptrdiff_t>(source);
    before.insert(before.end(), first, first + copy.token_count);
  }
  auto from = before.begin();
  for (const BlockCopy& copy : copies) {
    const auto to = slots_.begin() + std::ptrdiff_t{copy.destination.value()} * block_size;
    std::copy_n(from, copy.token_count, to);
    from += copy.token_count;
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> SimulatedWorker::Apply(const StepPlan& plan) {
  if (plan.epoch != epoch_) return absl::FailedPreconditionError("unknown epoch");
  if (const auto stored = stored_.find(plan.step); stored != stored_.end()) return stored->second;
  const bool follows = plan.step.value() == last_step_.value() + 1;
  if (!follows && !(plan.resets_state && plan.step > last_step_)) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", plan.step.value(), " does not follow ", last_step_.value()));
  }
  Tables next = sequences_;
  OCTAVO_RETURN_IF_ERROR(ApplyTables(plan, next));
  sequences_ = std::move(next);
  last_step_ = plan.step;
  OCTAVO_RETURN_IF_ERROR(ApplyCopies(plan.layer_groups[0].copies));
  StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
  result.digests = {plan.layer_groups[0].digest};
  if (failure_) {
    const PlanRow& row = plan.rows.at(*failure_ % plan.rows.size());
    if (row.samples) failed_.insert(row.sequence_id);
    failure_.reset();
  }
  computed_row_ = {};
  scored_top_.clear();
  std::span<const TokenId> inputs = plan.token_ids;
  for (const PlanRow& row : plan.rows) {
    OCTAVO_RETURN_IF_ERROR(Compute(plan, row, inputs, result));
  }
  if (!inputs.empty()) return absl::InternalError("tokens are left over");
  // The alternatives of all scored tokens come after those of the sampled ones.
  result.top.insert(result.top.end(), scored_top_.begin(), scored_top_.end());
  stored_[plan.step] = result;
  if (stored_.size() > 4) stored_.erase(stored_.begin());
  return result;
}

absl::Status SimulatedWorker::Compute(const StepPlan& plan, const PlanRow& row,
                                      std::span<const TokenId>& inputs, StepResult& result) {
  Sequence& sequence = sequences_.at(row.sequence_id);
  const auto fault = [&](const char* what) {
    return absl::InternalError(absl::StrCat("step ", plan.step.value(), ", sequence ",
                                            row.sequence_id.value(), ": ", what));
  };
  const uint32_t end = row.first_position + row.token_count;
  if (row.token_count == 0) return Bear(plan, row, result);
  if (layout_.BlocksFor(end) > sequence.table.size()) return fault("tokens beyond the block table");
  std::vector<TokenId> tokens;
  const uint32_t given = row.token_count - row.feeds_sampled;
  if (inputs.size() < given) return fault("too few tokens");
  tokens.assign(inputs.begin(), inputs.begin() + given);
  inputs = inputs.subspan(given);
  if (row.feeds_sampled) {
    if (sequence.sampled_at.value() + 1 != plan.step.value()) return fault("nothing to feed back");
    tokens.push_back(sequence.sampled);
  }
  uint64_t state = kEmptyState;
  uint64_t previous = kEmptyState;
  for (uint32_t i = 0; i < row.first_position; ++i) {
    previous = Slot(sequence, i);
    state = NextState(state, previous);
  }
  for (uint32_t i = 0; i < row.token_count; ++i) {
    const uint32_t position = row.first_position + i;
    if (sequence.needs_history && sequence.history.at(position) != tokens[i]) {
      return fault("history differs from the tokens");
    }
    previous = Slot(sequence, position) =
        HasFailed(row.sequence_id) ? kPoison : SlotValue(tokens[i], position, previous);
    state = NextState(state, previous);
    if (row.scores && state != kPoison && position + 1 < sequence.history.size()) {
      const TokenId known = sequence.history[position + 1];
      const auto top = TopAfter(state, sequence.top_count, vocabulary_);
      result.scored.push_back({row.sequence_id, position + 1, known, Score(state, known),
                               static_cast<uint32_t>(top.size())});
      scored_top_.insert(scored_top_.end(), top.begin(), top.end());
    }
  }
  row_state_ = state;
  computed_row_ = row;
  if (row.samples && !sequence.history.empty() && sequence.history.size() != end) {
    return fault("its history has another length");
  }
  if (row.samples) Choose(plan, row, state, result);
  return absl::OkStatus();
}

absl::Status SimulatedWorker::Bear(const StepPlan& plan, const PlanRow& row, StepResult& result) {
  const Sequence& sequence = sequences_.at(row.sequence_id);
  const auto fault = [&](const char* what) {
    return absl::InternalError(absl::StrCat("step ", plan.step.value(), ", sequence ",
                                            row.sequence_id.value(), ": ", what));
  };
  if (!row.shares_logits || !row.samples) return fault("an empty row");
  if (!computed_row_.samples ||
      computed_row_.first_position + computed_row_.token_count != row.first_position) {
    return fault("it shares the logits of another position");
  }
  if (layout_.BlocksFor(row.first_position) != sequence.table.size()) {
    return fault("its table is not that of what it shares");
  }
  uint64_t state = kEmptyState;
  for (uint32_t i = 0; i < row.first_position; ++i) state = NextState(state, Slot(sequence, i));
  if (state != row_state_) return fault("its blocks hold something else than what it shares");
  Choose(plan, row, state, result);
  return absl::OkStatus();
}

void SimulatedWorker::Choose(const StepPlan& plan, const PlanRow& row, uint64_t state,
                             StepResult& result) {
  Sequence& sequence = sequences_.at(row.sequence_id);
  sequence.sampled = Sample(state, sequence.seed, vocabulary_);
  sequence.sampled_at = plan.step;
  if (!sequence.history.empty()) sequence.history.push_back(sequence.sampled);
  if (state == kPoison || HasFailed(row.sequence_id)) {
    result.failed.push_back(row.sequence_id);
    return;
  }
  const auto top = TopAfter(state, sequence.top_count, vocabulary_);
  result.sampled.push_back({row.sequence_id, row.first_position + row.token_count, sequence.sampled,
                            -1.0f, static_cast<uint32_t>(top.size())});
  result.top.insert(result.top.end(), top.begin(), top.end());
}

bool SimulatedWorker::CorruptTable(uint64_t choice) {
  for (auto& [id, sequence] : sequences_) {
    if (sequence.table.empty() || choice-- % 3 != 0) continue;
    BlockId& entry = sequence.table[choice % sequence.table.size()];
    entry = BlockId(entry.value() ^ 1);
    return true;
  }
  return false;
}

}  // namespace octavo
