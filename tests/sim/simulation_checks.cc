// Simulation: what must hold of every plan, of every action and for whoever listens to KV events.

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/sample_seed.h"
#include "scheduler/core/prefix_scope.h"
#include "tests/sim/plain_beam_search.h"
#include "tests/sim/simulation.h"

namespace octavo {

void Simulation::CheckOutsider() {
  const StepNumber done = engine_.State().last_completed_step;
  if (!outsider_ || outsider_random_() % 100 == 0) {
    const bool listens = !outsider_.has_value();
    engine_.RecordKvEvents(listens);
    outsider_.reset();
    if (!listens) return;
    outsider_.emplace(layout_.block_size);
    if (absl::Status status = outsider_->Apply(engine_.KvSnapshot()); !status.ok())
      Fail(absl::StrCat("KV snapshot: ", status.ToString()));
  }
  if (absl::Status status = outsider_->Apply(engine_.TakeKvEvents()); !status.ok())
    Fail(absl::StrCat("KV events: ", status.ToString()));
  const std::vector<BlockRecord> blocks = engine_.ListBlocks(0, block_count_);
  const std::string difference = outsider_->Compare(blocks, done);
  if (!difference.empty()) Fail("KV events: " + difference);
  const bool is_ahead = std::any_of(blocks.begin(), blocks.end(),
                                    [&](const BlockRecord& it) { return it.valid_from > done; });
  if (is_ahead || streams_.empty() || !status_.ok()) return;
  const auto stream =
      std::next(streams_.begin(), static_cast<ptrdiff_t>(outsider_random_() % streams_.size()));
  const SubmitRequest& request = stream->second.request;
  const PrefixLookup lookup = engine_.LookupPrefix(request.prompt, request.cache_salt);
  const std::string other = outsider_->CompareLookup(
      request.prompt, PrefixScope(request.cache_salt), options_.prefix_match_unit, lookup);
  if (!other.empty()) Fail("KV events: " + other);
  outside_hits_ += lookup.hit_token_count > 0;
}

void Simulation::CheckBlocks(const StepPlan& plan) {
  const StepNumber done = engine_.State().last_completed_step;
  std::erase_if(uses_, [&](const Use& use) { return use.step <= done; });
  if (plan.resets_state) tables_.clear();
  for (const SequenceId id : plan.releases) tables_.erase(id);
  struct Write {
    SequenceId sequence;
    uint32_t first_slot;
  };
  std::map<BlockId, Write> written;
  std::map<BlockId, size_t> filled_by;  // row
  std::map<SequenceId, size_t> row_of;
  std::set<SequenceId> born;  // with the step that writes what they share
  size_t next = 0;
  const LayerGroupChange& change = plan.layer_groups[0];
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    auto& table = tables_[row.sequence_id];
    for (uint32_t n = change.new_block_counts[i]; n > 0; --n) {
      table.push_back(change.new_blocks[next++]);
    }
    if (row.token_count == 0) born.insert(row.sequence_id);
    row_of[row.sequence_id] = i;
  }
  born_samples_ += born.size();
  for (const TableEntryChange& entry : change.entry_changes) {
    tables_.at(entry.sequence_id).at(entry.index) = entry.block;
  }
  tail_copies_ += change.entry_changes.size();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    if (row.token_count == 0) continue;
    const auto& table = tables_[row.sequence_id];
    const uint32_t first = layout_.BlockIndex(row.first_position);
    const uint32_t last = layout_.BlockIndex(row.first_position + row.token_count - 1);
    for (uint32_t b = first; b <= last; ++b) {
      const uint32_t slot = b == first ? layout_.Offset(row.first_position) : 0;
      if (!written.emplace(table[b], Write{row.sequence_id, slot}).second) {
        Fail("two rows write one block");
      }
      const uint32_t block_end = (b + 1) * layout_.block_size;
      if (row.first_position + row.token_count >= block_end) filled_by[table[b]] = i;
    }
  }
  for (const auto& [id, table] : tables_) {
    if (born.contains(id)) continue;
    const auto row = row_of.find(id);
    for (const BlockId block : table) {
      const auto writer = written.find(block);
      if (writer == written.end() || writer->second.sequence == id) continue;
      const auto filler = filled_by.find(block);
      if (filler != filled_by.end() && row != row_of.end() && filler->second < row->second)
        continue;
      Fail(absl::StrCat("step ", plan.step.value(), " writes block ", block.value(),
                        " for sequence ", writer->second.sequence.value(),
                        ", which is in the table of ", id.value(), " too"));
    }
  }
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    if (row.token_count == 0) continue;
    Use use{plan.step, row.sequence_id, {}, i};
    const uint32_t end = row.first_position + row.token_count;
    const auto& table = tables_[row.sequence_id];
    for (uint32_t b = 0; b < table.size(); ++b) {
      const uint32_t begin = b * layout_.block_size;
      use.blocks.emplace_back(table[b], std::min(end - std::min(end, begin), layout_.block_size));
    }
    uses_.push_back(std::move(use));
  }
  for (const BlockCopy& copy : change.copies) {
    const auto writer = written.find(copy.destination);
    if (writer == written.end()) {
      Fail("a copy to a block that no row writes");
    } else {
      writer->second.first_slot = 0;
    }
    uses_.push_back({plan.step, SequenceId(), {{copy.source, copy.token_count}}, 0});
    ++copies_;
  }
  for (const Use& use : uses_) {
    for (const auto& [block, slots] : use.blocks) {
      const auto writer = written.find(block);
      const auto filler = filled_by.find(block);
      if (use.step == plan.step && filler != filled_by.end() && filler->second < use.row) {
        ++shared_in_step_;
        continue;
      }
      if (writer != written.end() && writer->second.sequence != use.sequence &&
          writer->second.first_slot < slots) {
        Fail(absl::StrCat("step ", plan.step.value(), " writes block ", block.value(),
                          " for sequence ", writer->second.sequence.value(), " while step ",
                          use.step.value(), " uses it for ", use.sequence.value()));
      }
    }
  }
}

void Simulation::Take(SendPlan action) {
  CheckBlocks(action.plan);
  uint32_t tokens = 0;
  for (const PlanRow& row : action.plan.rows) tokens += row.token_count;
  if (tokens > options_.max_step_tokens) Fail("a step is over its token budget");
  NoteOwners(action.plan);
  unanswered_[action.plan.step] = action.plan;
  to_worker_.push_back(std::move(action.plan));
}

void Simulation::Take(const RequestAdmitted& action) {
  Stream& stream = streams_.at(action.request_id);
  if (stream.admitted || stream.ended) Fail("a request is admitted twice, or after its end");
  if (action.cached_token_count >= stream.request.prompt.size())
    Fail("a hit covers the last token");
  stream.admitted = true;
}

void Simulation::Take(const TokensGenerated& action) {
  for (const GeneratedToken& token : action.tokens) {
    Stream& stream = streams_.at(token.request_id);
    const std::vector<TokenId>& prompt = stream.request.prompt;
    if (stream.ended || !stream.admitted) Fail("a token outside its request's life");
    const uint32_t position = token.outcome.position;
    const std::span<const TokenLogprob> top(action.top.data() + token.first_top,
                                            token.outcome.top_count);
    const auto check_top = [&](std::span<const TokenId> tokens) {
      const auto expected =
          ExpectedTop(tokens, stream.request.sampling.logprobs.value_or(0), vocabulary_);
      if (!std::equal(top.begin(), top.end(), expected.begin(), expected.end())) {
        Fail("a token's alternatives are those of another");
      }
    };
    if (token.scores_prompt) {
      if (position != stream.next_score++ || position >= prompt.size() ||
          token.outcome.token_id != prompt[position] ||
          token.outcome.logprob != ExpectedScore(prompt, position)) {
        Fail(absl::StrCat("request ", token.request_id.value(), ": wrong score at ", position));
      } else {
        check_top(std::span(prompt).first(position));
      }
      continue;
    }
    if (stream.request.prompt_logprobs && stream.next_score != prompt.size()) {
      Fail("a token before its prompt's scores");
    }
    Sample& sample = stream.samples.at(token.sequence_index);
    if (sample.complete) Fail("a token after its sequence's end");
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), sample.output.begin(), sample.output.end());
    const uint64_t seed = SampleSeed(stream.request.seed, token.sequence_index);
    if (position != tokens.size() ||
        token.outcome.token_id != ExpectedToken(tokens, seed, vocabulary_)) {
      Fail(absl::StrCat("request ", token.request_id.value(), ", sample ", token.sequence_index,
                        ": wrong token at ", position, "; alone it has another one at ",
                        tokens.size()));
    }
    check_top(tokens);
    sample.output.push_back(token.outcome.token_id);
  }
}

void Simulation::Take(const BeamsAdvanced& action) {
  Stream& stream = streams_.at(action.request_id);
  if (stream.ended || !stream.admitted || !stream.request.beams ||
      action.token_count != ++stream.beam_length) {
    Fail("a step of a beam search that is none, or the next one");
  }
}

bool Simulation::IsPlainSearch(const Stream& stream, uint32_t stopped_after) const {
  const SubmitRequest& request = stream.request;
  const auto left = options_.context_length - static_cast<uint32_t>(request.prompt.size());
  const auto logprobs = [&](std::span<const TokenId> output) {
    std::vector<TokenId> tokens = request.prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    std::vector<float> all(vocabulary_);
    for (const TokenLogprob& it : ExpectedTop(tokens, vocabulary_, vocabulary_)) {
      all[static_cast<size_t>(it.token_id)] = it.logprob;
    }
    return all;
  };
  const auto& stops = request.sampling.stop_token_ids;
  std::vector<PlainHypothesis> expected =
      PlainBeamSearch{.params = *request.beams,
                      .stop_tokens = {stops.begin(), stops.end()},
                      .max_tokens = request.max_tokens.value_or(left),
                      .logprobs = logprobs,
                      .stopped_after = stopped_after}
          .Run();
  expected.resize(stream.samples.size());
  const FinishReason limit = stopped_after != UINT32_MAX ? FinishReason::kPoolExhausted
                             : request.max_tokens        ? FinishReason::kLength
                                                         : FinishReason::kModelLength;
  return std::equal(stream.samples.begin(), stream.samples.end(), expected.begin(),
                    [&](const Sample& a, const PlainHypothesis& b) {
                      return a.output == b.tokens && a.score == static_cast<float>(b.score) &&
                             a.reason == (b.stopped ? FinishReason::kStopToken : limit);
                    });
}

void Simulation::CheckSearch(const Stream& stream) {
  ++beam_searches_;
  if (IsPlainSearch(stream, UINT32_MAX)) return;
  const size_t tokens = stream.request.prompt.size() + stream.beam_length;
  if (stream.request.max_tokens || layout_.BlocksFor(tokens) <= block_count_) {
    Fail("a beam search finds something else than a plain one");
  } else if (!IsPlainSearch(stream, stream.beam_length)) {
    Fail("a beam search that outgrew the pool is not a plain one until then");
  }
}

void Simulation::CheckWhole(const Stream& stream, const SequenceFinished& action) {
  const std::vector<TokenId>& output = stream.samples[action.sequence_index].output;
  const SamplingParams& sampling = stream.request.sampling;
  const uint32_t left =
      options_.context_length - static_cast<uint32_t>(stream.request.prompt.size());
  std::optional<FinishReason> expected;
  for (uint32_t i = 0; i < output.size(); ++i) {
    if (expected) Fail("a token after the stream's end");
    const bool stops =
        std::count(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end(), output[i]) > 0 &&
        i + 1 >= sampling.min_tokens;
    if (stops) {
      expected = FinishReason::kStopToken;
    } else if (i + 1 == stream.request.max_tokens.value_or(left)) {
      expected = stream.request.max_tokens ? FinishReason::kLength : FinishReason::kModelLength;
    }
  }
  if (expected != action.reason) Fail("a stream ends for the wrong reason, or too soon");
}

void Simulation::Take(const SequenceFinished& action) {
  Stream& stream = streams_.at(action.request_id);
  Sample& sample = stream.samples.at(action.sequence_index);
  if (stream.ended || sample.complete) Fail("a sequence ends twice");
  sample.complete = true;
  if (stream.request.beams) {  // looked at together, when the request ends
    sample.output = action.tokens;
    sample.score = action.score;
    sample.reason = action.reason;
    return;
  }
  if (action.completion_token_count != sample.output.size())
    Fail("the count of a complete sequence is wrong");
  switch (action.reason) {
    case FinishReason::kStopToken:
    case FinishReason::kLength:
    case FinishReason::kModelLength:
      CheckWhole(stream, action);
      ++whole_streams_;
      break;
    case FinishReason::kPoolExhausted: {
      const size_t tokens = stream.request.prompt.size() + sample.output.size();
      if (stream.request.max_tokens || layout_.BlocksFor(tokens) <= block_count_) {
        Fail("a sequence that fits ends for want of blocks");
      }
      break;
    }
    case FinishReason::kStopString:
      if (!faults_) Fail("ended at a stop string that nobody told");
      break;
    default:
      Fail(absl::StrCat("a complete sequence, by ", FinishReasonName(action.reason)));
  }
}

void Simulation::Take(const RequestFinished& action) {
  Stream& stream = streams_.at(action.request_id);
  size_t complete = 0;
  size_t tokens = 0;
  for (const Sample& sample : stream.samples) {
    complete += sample.complete;
    tokens += sample.output.size();
  }
  if (action.status.ok() != (complete == stream.samples.size())) {
    Fail("a request ends well without all its sequences, or badly with them");
  }
  if (stream.request.beams && !action.status.ok()) tokens = stream.beam_length;
  if (stream.ended) Fail("a request ends twice");
  stream.ended = true;
  stream.reason = action.reason;
  if (action.completion_token_count != tokens ||
      action.prompt_token_count != stream.request.prompt.size()) {
    Fail("the counts of an ended request are wrong");
  }
  if (action.status.ok()) {
    if (stream.request.beams) CheckSearch(stream);
    return;
  }
  switch (action.reason) {
    case FinishReason::kDeadline:
      break;
    case FinishReason::kError:
      // Submitted while there was no pool, and too long for the one that came.
      if (absl::IsFailedPrecondition(action.status)) break;
      if (IsGivenUp(action.status)) {
        CheckGivenUp(action.request_id);
      } else if (absl::IsInternal(action.status)) {
        const auto record = engine_.FindRequest(action.request_id);
        const auto& sequences = record->sequences;
        if (std::none_of(sequences.begin(), sequences.end(), [&](const SequenceRecord& it) {
              return failures_.contains(it.sequence_id);
            }))
          Fail("a request fails for another one's logits");
      }
      [[fallthrough]];
    default:
      if (!faults_) Fail(absl::StrCat("ended without cause: ", FinishReasonName(action.reason)));
  }
}

void Simulation::Take(const RequestRefused& action) {
  Stream& stream = streams_.at(action.request_id);
  if (stream.ended || stream.admitted) Fail("a request is refused after its admission or end");
  stream.ended = true;
}

void Simulation::Take(const ReplicaRejected& action) {
  NoteLoss();
  if (!faults_) Fail(absl::StrCat("the replica was rejected: ", action.status.ToString()));
  worker_.reset();
  to_worker_.clear();
  unanswered_.clear();
}

}  // namespace octavo
