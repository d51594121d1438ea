#include "tests/sim/simulation.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/sample_seed.h"
#include "scheduler/core/prefix_scope.h"
#include "tests/sim/plain_beam_search.h"

namespace octavo {

Simulation::Simulation(SimulationOptions settings)
    : settings_(std::move(settings)),
      faults_(settings_.faults),
      random_(settings_.seed),
      vocabulary_(static_cast<uint32_t>(8 + Draw(40))),
      layout_{.block_size = std::vector<uint32_t>{1, 2, 3, 4, 5, 8, 16}[Draw(7)],
              .layer_count = 1,
              .kv_head_count = 1,
              .head_dim = 8},
      block_count_(static_cast<uint32_t>(6 + Draw(60))),
      options_(DrawOptions()),
      engine_(options_),
      outsider_random_(settings_.seed) {}

EngineOptions Simulation::DrawOptions() {
  EngineOptions options;
  options.vocab_size = vocabulary_;
  options.context_length = static_cast<uint32_t>(20 + Draw(80));
  options.max_sequences = static_cast<uint32_t>(1 + Draw(8));
  options.max_step_tokens = static_cast<uint32_t>(options.max_sequences + Draw(40));
  options.long_prefill_token_limit = static_cast<uint32_t>(Draw(3) == 0 ? 1 + Draw(20) : 0);
  options.max_steps_in_flight = Draw(4) == 0 ? 1 : 2;
  options.max_waiting_requests = 12;
  options.prefix_cache = Draw(5) != 0;
  options.prefix_match_unit = static_cast<uint32_t>(Draw(3) != 0 ? 1 : 1 + Draw(16));
  options.prefix_seed = random_();
  options.watermark_blocks = static_cast<uint32_t>(Draw(3));
  options.max_prefix_wait_steps =
      static_cast<uint32_t>(std::vector<uint32_t>{0, 1, 3, 128}[Draw(4)]);
  options.max_consecutive_resyncs = static_cast<uint32_t>(1 + Draw(3));
  if (Draw(6) == 0) {
    options.kv_policy = kKvPolicies[1 + Draw(std::size(kKvPolicies) - 1)];
    options.contiguous_allocator =
        Draw(2) == 0 ? ContiguousAllocatorKind::kBuddy : ContiguousAllocatorKind::kFirstFit;
    options.prefix_cache = false;
    // The longest run, rounded up to a power of two, fits: then nobody ends for want of blocks.
    options.context_length =
        std::min(options.context_length, std::bit_floor(block_count_) * layout_.block_size);
  }
  return options;
}

SubmitRequest Simulation::DrawRequest() {
  SubmitRequest request;
  request.request_id = RequestId(streams_.size() + 1);
  // Few documents, so that prefixes are shared; the rest of the prompt is the request's own, or
  // what an earlier one generated.
  const uint64_t document = Draw(3);
  const uint64_t shared = Draw(30);
  for (uint64_t i = 0; i < shared; ++i) {
    request.prompt.push_back(static_cast<TokenId>(Mix64(document * 1000 + i) % vocabulary_));
  }
  if (!streams_.empty() && Draw(3) == 0) {
    const Stream& earlier =
        std::next(streams_.begin(), static_cast<int64_t>(Draw(streams_.size())))->second;
    request.prompt = earlier.request.prompt;
    request.prompt.insert(request.prompt.end(), earlier.samples[0].output.begin(),
                          earlier.samples[0].output.end());
  }
  const uint64_t own = Draw(2) == 0 ? 1 + Draw(4) : 1 + Draw(30);
  for (uint64_t i = 0; i < own; ++i) {
    request.prompt.push_back(static_cast<TokenId>(Draw(vocabulary_)));
  }
  // A few are longer than the model, so that refusals happen too.
  if (Draw(20) != 0 && request.prompt.size() > options_.context_length / 2) {
    request.prompt.resize(options_.context_length / 2);
  }
  request.seed = random_();
  if (Draw(3) == 0) request.sample_count = static_cast<uint32_t>(1 + Draw(4));
  if (request.sample_count == 1 && Draw(5) == 0) {
    request.beams = BeamSearchParams{.width = static_cast<uint32_t>(2 + Draw(4))};
    request.beams->returned = static_cast<uint32_t>(1 + Draw(request.beams->width));
    request.beams->length_penalty = std::vector<float>{-1, 0, 1, 2}[Draw(4)];
    request.beams->early_stopping = static_cast<EarlyStopping>(Draw(3));
  }
  if (Draw(4) != 0) request.max_tokens = static_cast<uint32_t>(1 + Draw(25));
  if (Draw(2) == 0) {
    request.sampling.stop_token_ids = {static_cast<TokenId>(Draw(vocabulary_)),
                                       static_cast<TokenId>(Draw(vocabulary_))};
    request.sampling.min_tokens = static_cast<uint32_t>(Draw(4));
  }
  if (Draw(4) == 0) request.sampling.presence_penalty = 0.5f;
  if (Draw(4) == 0) request.sampling.logprobs = static_cast<uint32_t>(Draw(4));
  if (Draw(4) == 0) request.cache_salt = absl::StrCat("salt", Draw(2));
  request.priority = static_cast<int32_t>(Draw(3)) - 1;
  request.prompt_logprobs = Draw(6) == 0 && !request.beams;
  request.no_cache = Draw(8) == 0;
  if (faults_ && Draw(8) == 0) request.deadline = now_ + absl::Milliseconds(1 + Draw(200));
  if (Draw(3) == 0) request.client_request_id = absl::StrCat("client", request.request_id.value());
  return request;
}

void Simulation::Fail(const std::string& what) {
  if (status_.ok()) status_ = absl::InternalError(what);
}

Simulation::Stream* Simulation::DrawLive() {
  std::vector<Stream*> live;
  for (auto& [id, stream] : streams_) {
    if (!stream.ended) live.push_back(&stream);
  }
  return live.empty() ? nullptr : live[Draw(live.size())];
}

SimulationReport Simulation::Run(uint32_t turns) {
  const std::string setting = absl::StrCat(
      "block_size ", layout_.block_size, ", ", block_count_, " blocks, context ",
      options_.context_length, ", max_step_tokens ", options_.max_step_tokens, ", chunk ",
      options_.long_prefill_token_limit, ", max_sequences ", options_.max_sequences, ", in flight ",
      options_.max_steps_in_flight, ", cache ", options_.prefix_cache, ", unit ",
      options_.prefix_match_unit, ", policy ", KvPolicyName(options_.kv_policy));
  if (Draw(2) == 0) StartReplica();
  for (uint32_t turn = 0; turn < turns && status_.ok(); ++turn) Turn();
  // The storm is over: everybody reads again, nothing is lost any more, and what is left runs to
  // its end.
  for (auto& [id, stream] : streams_) {
    if (stream.paused && !stream.ended && status_.ok()) Send(ResumeRequest{id});
  }
  for (uint32_t turn = 0; turn < 20000 && status_.ok() && !engine_.idle(); ++turn) {
    if (!worker_) StartReplica();
    Plan();
    if (to_worker_.empty() && to_engine_.empty()) {
      for (const auto& [step, plan] : unanswered_) to_worker_.push_back(plan);
    }
    DeliverPlan();
    DeliverResult();
  }
  if (status_.ok() && !engine_.idle()) {
    const SchedulerState state = engine_.State();
    Fail(absl::StrCat("requests are left and nothing moves: ", state.running_sequences,
                      " running, ", state.waiting_requests, " waiting"));
  }
  for (uint32_t turn = 0; turn < 100 && status_.ok(); ++turn) {
    for (const auto& [step, plan] : unanswered_) to_worker_.push_back(plan);
    DeliverPlan();
    DeliverResult();
  }
  const SchedulerState state = engine_.State();
  if (state.held_blocks != 0 || state.returning_blocks != 0 || state.promised_blocks != 0) {
    Fail(absl::StrCat(state.held_blocks, " blocks are held at the end"));
  }
  for (const auto& [id, stream] : streams_) {
    if (!stream.ended) Fail(absl::StrCat("request ", id.value(), " never ended"));
  }
  return {status_,        setting,      engine_.Counters(), static_cast<uint32_t>(streams_.size()),
          whole_streams_, copies_,      shared_in_step_,    failures_.size(),
          born_samples_,  tail_copies_, outside_hits_,      beam_searches_,
          given_up_};
}

void Simulation::Turn() {
  now_ += absl::Milliseconds(1);
  const uint64_t kind = Draw(100);
  if (kind < 12) {
    SubmitRequest request = DrawRequest();
    streams_[request.request_id].request = request;
    if (faults_ && options_.kv_policy == KvPolicy::kPaged && Draw(30) == 0) {
      poisons_[request.request_id] = static_cast<uint32_t>(Draw(request.prompt.size() + 10));
    }
    streams_[request.request_id].samples.resize(request.beams ? request.beams->returned
                                                              : request.sample_count);
    Send(std::move(request));
  } else if (kind < 40) {
    Plan();
  } else if (kind < 66) {
    DeliverPlan();
  } else if (kind < 92) {
    DeliverResult();
  } else if (kind < 94) {
    Send(Tick{});
  } else if (faults_) {
    Fault();
  }
  if (!worker_ && Draw(20) == 0) StartReplica();
}

void Simulation::Fault() {
  Stream* stream = DrawLive();
  switch (Draw(16)) {
    case 0:
    case 1:
    case 2:
      if (stream != nullptr) {
        const uint32_t reason = Draw(4);
        if (reason == 3) {
          const auto index = static_cast<uint32_t>(Draw(stream->samples.size()));
          Send(StopSequence{stream->request.request_id, index,
                            static_cast<uint32_t>(stream->samples[index].output.size())});
        } else {
          Send(CancelRequest{stream->request.request_id, static_cast<CancelReason>(reason)});
        }
      }
      break;
    case 3:
    case 4:
      if (stream != nullptr) {
        stream->paused = true;
        Send(PauseRequest{stream->request.request_id});
      }
      break;
    case 5:
    case 6:
    case 7:
      if (stream != nullptr && stream->paused) {
        stream->paused = false;
        Send(ResumeRequest{stream->request.request_id});
      }
      break;
    case 8:  // lost on the way; the runtime sends it again
      if (!to_worker_.empty()) to_worker_.pop_front();
      break;
    case 9:
      if (!to_engine_.empty()) to_engine_.pop_front();
      break;
    case 10:  // overtaken
      if (to_engine_.size() > 1) std::swap(to_engine_[0], to_engine_[1]);
      break;
    case 11:
      if (to_worker_.size() > 1 && Draw(4) == 0) std::swap(to_worker_[0], to_worker_[1]);
      break;
    case 12:  // twice
      if (!to_engine_.empty()) to_engine_.push_back(to_engine_.front());
      break;
    case 13:
      for (const auto& [step, plan] : unanswered_) to_worker_.push_back(plan);
      break;
    case 14:
      if (worker_ && settings_.corrupt_tables && Draw(3) == 0) worker_->CorruptTable(random_());
      break;
    case 15:
      if (Draw(3) == 0) Send(ResetPrefixCache{});
      if (worker_) worker_->FailNextRow(random_());
      if (worker_ && Draw(8) == 0) LoseReplica("killed");
      break;
  }
}

void Simulation::StartReplica() {
  ++epoch_;
  worker_.emplace(Epoch(epoch_), layout_, block_count_, vocabulary_);
  to_worker_.clear();
  unanswered_.clear();
  tables_.clear();
  uses_.clear();
  const ReplicaReady ready{ReplicaId(0), Epoch(epoch_), {{layout_, block_count_}}};
  if (settings_.on_replica) settings_.on_replica(ready, options_);
  Send(ready);
}

void Simulation::DeliverPlan() {
  if (to_worker_.empty() || !worker_) return;
  StepPlan plan = std::move(to_worker_.front());
  to_worker_.pop_front();
  const uint64_t digest = plan.layer_groups[0].digest;
  if (Kills(plan)) {
    LoseReplica("crashed");
    return;
  }
  if (settings_.spoil_plan) settings_.spoil_plan(plan);
  absl::StatusOr<StepResult> result = worker_->Apply(plan);
  if (result.ok() && settings_.spoil_plan) result->digests = {digest};
  if (settings_.on_plan) {
    if (absl::Status status = settings_.on_plan(plan, result.status()); !status.ok()) {
      Fail(status.ToString());
    }
  }
  for (const PlanRow& row : plan.rows) {
    if (worker_->HasFailed(row.sequence_id)) failures_.insert(row.sequence_id);
  }
  if (result.ok()) {
    to_engine_.push_back(StepCompleted{*std::move(result)});
  } else if (absl::IsFailedPrecondition(result.status())) {
    to_engine_.push_back(StepRefused{plan.replica_id, plan.epoch, plan.step, result.status()});
  } else {
    Fail(absl::StrCat("the worker cannot apply a plan: ", result.status().ToString()));
  }
}

void Simulation::DeliverResult() {
  if (to_engine_.empty()) {
    if (Draw(4) == 0) {
      for (const auto& [step, plan] : unanswered_) to_worker_.push_back(plan);
    }
    return;
  }
  Event event = std::move(to_engine_.front());
  to_engine_.pop_front();
  if (const auto* done = std::get_if<StepCompleted>(&event)) {
    if (done->result.epoch == Epoch(epoch_)) unanswered_.erase(done->result.step);
  } else if (const auto* refused = std::get_if<StepRefused>(&event)) {
    if (refused->epoch == Epoch(epoch_)) unanswered_.erase(refused->step);
  }
  const uint64_t resyncs = engine_.Counters().resyncs;
  Send(std::move(event));
  // Plans from before a resynchronisation are not sent again.
  if (engine_.Counters().resyncs != resyncs) unanswered_.clear();
}

void Simulation::Send(Event event) {
  engine_.Handle(std::move(event), now_, actions_);
  Absorb();
}

void Simulation::Plan() {
  engine_.PlanNext(now_, actions_);
  Absorb();
}

void Simulation::Absorb() {
  if (absl::Status status = engine_.CheckInvariants(); !status.ok()) Fail(status.ToString());
  for (Action& action : std::exchange(actions_, {})) {
    std::visit([this](auto&& it) { Take(std::move(it)); }, std::move(action));
  }
  CheckOutsider();
}

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
