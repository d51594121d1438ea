#include "tests/unit/scheduler/core/trace_runner.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_reason.h"
#include "glog/logging.h"

namespace octavo {
namespace {

std::vector<TokenId> ParseRanges(const std::string& text) {
  std::vector<TokenId> tokens;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    CHECK(absl::SimpleAtoi(ends.front(), &first) && absl::SimpleAtoi(ends.back(), &last)) << part;
    for (int token = first; token <= last; ++token) tokens.push_back(token);
  }
  return tokens;
}

std::string JoinBlocks(std::span<const BlockId> blocks) {
  return absl::StrJoin(blocks.begin(), blocks.end(), ",", [](std::string* out, BlockId block) {
    absl::StrAppend(out, block.value());
  });
}

// "CODE: message [REASON number=1 …; retry in 1s]"
std::string StatusText(absl::Status status) {
  std::string text = PlainText(status);
  const absl::Duration delay = RetryDelay(status);
  if (const auto reason = TakeReason(status)) {
    absl::StrAppend(&text, " [", reason->reason);
    for (const auto& [name, number] : reason->numbers) {
      absl::StrAppend(&text, " ", name, "=", number);
    }
    if (delay > absl::ZeroDuration()) {
      absl::StrAppend(&text, "; retry in ", absl::FormatDuration(delay));
    }
    absl::StrAppend(&text, "]");
  }
  return text;
}

}  // namespace

uint32_t TraceRunner::Command::Number(const std::string& key, uint32_t absent) const {
  const auto it = values.find(key);
  uint32_t value = absent;
  if (it != values.end()) CHECK(absl::SimpleAtoi(it->second, &value)) << key;
  return value;
}

bool TraceRunner::Command::Has(const std::string& word) const {
  return std::find(names.begin(), names.end(), word) != names.end();
}

TraceRunner::Command TraceRunner::Parse(const std::string& line) {
  Command command;
  for (const absl::string_view view : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const std::string word(view);
    const std::vector<std::string> sides = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (command.verb.empty()) {
      command.verb = word;
    } else if (sides.size() == 2) {
      command.values[sides[0]] = sides[1];
    } else {
      command.names.push_back(word);
    }
  }
  return command;
}

std::string TraceRunner::Run(const std::string& line) {
  std::string out = Dispatch(Parse(line));
  if (engine_) {
    if (absl::Status status = engine_->CheckInvariants(); !status.ok()) {
      absl::StrAppend(&out, "VIOLATED: ", status.ToString(), "\n");
    }
  }
  return out.empty() ? "ok\n" : out;
}

std::string TraceRunner::Dispatch(const Command& command) {
  const std::string name = command.names.empty() ? "" : command.names[0];
  const auto request = [&] {
    const auto it = requests_.find(name);
    return it == requests_.end() ? RequestId(999999) : it->second;
  };
  const auto handle = [&](Event event) { engine_->Handle(std::move(event), now_, actions_); };
  if (command.verb == "engine") {
    NewEngine(command);
  } else if (command.verb == "ready") {
    Ready(command);
  } else if (command.verb == "submit") {
    Submit(command);
  } else if (command.verb == "plan") {
    if (!engine_->PlanNext(now_, actions_)) return absl::StrCat(Print(), "no plan\n");
  } else if (command.verb == "complete") {
    Complete(command);
  } else if (command.verb == "repeat") {
    handle(StepCompleted{*last_result_});
  } else if (command.verb == "refuse") {
    const StepNumber step(command.Number("step", in_flight_.front().step.value()));
    in_flight_.clear();
    handle(StepRefused{ReplicaId(0), Epoch(epoch_), step,
                       absl::FailedPreconditionError("digest mismatch")});
  } else if (command.verb == "lose") {
    in_flight_.clear();
    handle(ReplicaLost{ReplicaId(0), Epoch(epoch_), absl::UnavailableError("connection closed")});
  } else if (command.verb == "cancel") {
    const std::string reason =
        command.values.contains("reason") ? command.values.at("reason") : "client_gone";
    handle(CancelRequest{request(), reason == "aborted"    ? CancelReason::kAborted
                                    : reason == "deadline" ? CancelReason::kDeadline
                                                           : CancelReason::kClientGone});
  } else if (command.verb == "stop_string") {
    handle(StopSequence{request(), command.Number("sequence", 0), command.Number("kept", 0)});
  } else if (command.verb == "pause") {
    handle(PauseRequest{request()});
  } else if (command.verb == "resume") {
    handle(ResumeRequest{request()});
  } else if (command.verb == "drain") {
    handle(DrainStarted{});
  } else if (command.verb == "reset") {
    handle(ResetPrefixCache{7});
  } else if (command.verb == "tick") {
    now_ += absl::Milliseconds(command.Number("ms", 0));
    handle(Tick{});
  } else if (command.verb == "run") {
    std::string out;
    for (uint32_t i = command.Number("steps", 100); i > 0; --i) {
      while (engine_->PlanNext(now_, actions_)) {
      }
      absl::StrAppend(&out, Print());
      if (in_flight_.empty()) break;
      Complete(Command{});
      absl::StrAppend(&out, Print());
      CHECK(engine_->CheckInvariants().ok()) << engine_->CheckInvariants();
    }
    return absl::StrCat(out, Print());
  } else {
    return Inspect(command);
  }
  return Print();
}

void TraceRunner::NewEngine(const Command& command) {
  EngineOptions options;
  options.context_length = command.Number("context_length", 4096);
  options.max_step_tokens = command.Number("max_step_tokens", 2048);
  options.long_prefill_token_limit = command.Number("long_prefill_token_limit", 0);
  options.max_sequences = command.Number("max_sequences", 8);
  options.max_steps_in_flight = command.Number("max_steps_in_flight", 2);
  options.max_waiting_requests = command.Number("max_waiting_requests", 100);
  options.prefix_cache = command.Number("prefix_cache", 1) != 0;
  options.prefix_match_unit = command.Number("prefix_match_unit", kMaxBlockSize);
  options.watermark_blocks = command.Number("watermark_blocks", 0);
  options.max_prefix_wait_steps = command.Number("max_prefix_wait_steps", 128);
  options.max_consecutive_resyncs = command.Number("max_consecutive_resyncs", 3);
  engine_.emplace(options);
  requests_.clear();
  names_.clear();
  sequence_names_.clear();
  beam_counts_.clear();
  top_counts_.clear();
  in_flight_.clear();
  epoch_ = 0;
}

void TraceRunner::Ready(const Command& command) {
  const KvLayout layout{.block_size = command.Number("block_size", 16),
                        .layer_count = 1,
                        .kv_head_count = 1,
                        .head_dim = 8};
  in_flight_.clear();
  engine_->Handle(
      ReplicaReady{ReplicaId(0), Epoch(++epoch_), {{layout, command.Number("blocks", 8)}}}, now_,
      actions_);
}

void TraceRunner::Submit(const Command& command) {
  SubmitRequest event;
  event.request_id = RequestId(names_.size() + 1);
  requests_[command.names.at(0)] = event.request_id;
  names_[event.request_id] = command.names[0];
  event.prompt = ParseRanges(command.values.at("prompt"));
  if (command.values.contains("max")) event.max_tokens = command.Number("max", 0);
  if (command.values.contains("priority")) {
    CHECK(absl::SimpleAtoi(command.values.at("priority"), &event.priority));
  }
  if (command.values.contains("salt")) event.cache_salt = command.values.at("salt");
  if (command.values.contains("client_id"))
    event.client_request_id = command.values.at("client_id");
  if (command.values.contains("stop")) {
    event.sampling.stop_token_ids = {static_cast<TokenId>(command.Number("stop", 0))};
  }
  event.sampling.min_tokens = command.Number("min", 0);
  if (command.values.contains("deadline_ms")) {
    event.deadline = now_ + absl::Milliseconds(command.Number("deadline_ms", 0));
  }
  event.sample_count = command.Number("n", 1);
  if (command.values.contains("beams")) {
    event.beams = BeamSearchParams{.width = command.Number("beams", 0),
                                   .returned = command.Number("returned", 1)};
    if (command.Has("early")) event.beams->early_stopping = EarlyStopping::kAlways;
  }
  event.prompt_logprobs = command.Has("scores");
  event.no_cache = command.Has("no_cache");
  engine_->Handle(std::move(event), now_, actions_);
  if (const auto record = engine_->FindRequest(requests_[command.names[0]])) {
    sequence_names_[record->sequence_id] = command.names[0];
    for (uint32_t i = 1; i < record->sample_count; ++i) {
      sequence_names_[SequenceId(record->sequence_id.value() + i)] =
          absl::StrCat(command.names[0], ".", i);
    }
  }
}

void TraceRunner::Complete(const Command& command) {
  CHECK(!in_flight_.empty()) << "no step is in flight";
  const uint64_t step = command.Number("step", in_flight_.front().step.value());
  const auto plan = std::find_if(in_flight_.begin(), in_flight_.end(),
                                 [&](const StepPlan& it) { return it.step.value() == step; });
  CHECK(plan != in_flight_.end()) << "step " << step << " is not in flight";
  StepResult result{.replica_id = plan->replica_id, .epoch = plan->epoch, .step = plan->step};
  result.digests = {plan->layer_groups[0].digest};
  for (const PlanRow& row : plan->rows) {
    const uint32_t end = row.first_position + row.token_count;
    if (row.scores) {
      for (uint32_t position = row.first_position + 1; position < end; ++position) {
        result.scored.push_back({row.sequence_id, position, 0, -1.0f, 0});
      }
      if (!row.samples) result.scored.push_back({row.sequence_id, end, 0, -1.0f, 0});
    }
    if (command.Has(absl::StrCat("fail:", Name(row.sequence_id)))) {
      result.failed.push_back(row.sequence_id);
    } else if (row.samples) {
      const std::string name = Name(row.sequence_id);
      const auto top = Alternatives(top_counts_[row.sequence_id], command, name);
      const uint32_t token = top.empty() ? command.Number(name, 9000 + end) : 0;
      result.sampled.push_back({row.sequence_id, end, static_cast<TokenId>(token), 0,
                                static_cast<uint32_t>(top.size())});
      result.top.insert(result.top.end(), top.begin(), top.end());
    }
  }
  in_flight_.erase(plan);
  last_result_ = result;
  engine_->Handle(StepCompleted{std::move(result)}, now_, actions_);
}

std::vector<TokenLogprob> TraceRunner::Alternatives(uint32_t count, const Command& command,
                                                    const std::string& name) {
  std::vector<TokenLogprob> top;
  for (uint32_t i = 1; i <= count; ++i) top.push_back({static_cast<TokenId>(i), -float(i)});
  if (count == 0 || !command.values.contains(name)) return top;
  auto next = top.begin();
  for (const absl::string_view pair : absl::StrSplit(command.values.at(name), ',')) {
    const std::vector<std::string> sides = absl::StrSplit(pair, ':');
    CHECK(next != top.end() && absl::SimpleAtoi(sides.at(0), &next->token_id) &&
          absl::SimpleAtof(sides.at(1), &next->logprob))
        << pair;
    next++->logprob *= -1;
  }
  return top;
}

void TraceRunner::NoteStart(const SequenceStart& start) {
  top_counts_[start.sequence_id] = start.sampling.logprobs.value_or(0);
  if (sequence_names_.contains(start.sequence_id)) return;
  for (const auto& [name, id] : requests_) {
    const auto record = engine_->FindRequest(id);
    for (const SequenceRecord& it : record ? record->sequences : std::vector<SequenceRecord>()) {
      if (it.sequence_id != start.sequence_id) continue;
      sequence_names_[it.sequence_id] = absl::StrCat(name, "~", ++beam_counts_[name]);
    }
  }
}

std::string TraceRunner::Name(SequenceId sequence) const {
  const auto it = sequence_names_.find(sequence);
  return it == sequence_names_.end() ? absl::StrCat("?", sequence.value()) : it->second;
}

std::string TraceRunner::PrintPlan(const StepPlan& plan) const {
  std::string out =
      absl::StrCat("step ", plan.step.value(), plan.resets_state ? " resets_state" : "");
  for (const SequenceId id : plan.releases) absl::StrAppend(&out, " release:", Name(id));
  absl::StrAppend(&out, "\n");
  std::set<SequenceId> starts;
  for (const SequenceStart& start : plan.starts) starts.insert(start.sequence_id);
  auto block = plan.layer_groups[0].new_blocks.begin();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const uint32_t count = plan.layer_groups[0].new_block_counts[i];
    absl::StrAppend(&out, "  ", Name(row.sequence_id), " [", row.first_position, ",",
                    row.first_position + row.token_count, ")");
    if (starts.contains(row.sequence_id)) absl::StrAppend(&out, " start");
    if (count > 0) absl::StrAppend(&out, " +", JoinBlocks({block, block + count}));
    if (row.samples) absl::StrAppend(&out, " samples");
    if (row.feeds_sampled) absl::StrAppend(&out, " fed");
    if (row.scores) absl::StrAppend(&out, " scores");
    if (row.shares_logits) absl::StrAppend(&out, " shares");
    absl::StrAppend(&out, "\n");
    block += count;
  }
  for (const TableEntryChange& entry : plan.layer_groups[0].entry_changes) {
    absl::StrAppend(&out, "  ", Name(entry.sequence_id), " entry ", entry.index, " is now ",
                    entry.block.value(), "\n");
  }
  for (const BlockCopy& copy : plan.layer_groups[0].copies) {
    absl::StrAppend(&out, "  copies ", copy.token_count, " of ", copy.source.value(), " to ",
                    copy.destination.value(), "\n");
  }
  return out;
}

std::string TraceRunner::Print() {
  std::string out;
  std::optional<TokenId> stop_token;  // of the sequence that was complete last
  for (Action& action : std::exchange(actions_, {})) {
    std::visit(
        [&](auto& it) {
          using T = std::decay_t<decltype(it)>;
          if constexpr (std::is_same_v<T, SendPlan>) {
            for (const SequenceStart& start : it.plan.starts) NoteStart(start);
            absl::StrAppend(&out, PrintPlan(it.plan));
            in_flight_.push_back(std::move(it.plan));
          } else if constexpr (std::is_same_v<T, RequestAdmitted>) {
            absl::StrAppend(&out, "admitted ", names_.at(it.request_id), " cached ",
                            it.cached_token_count, "\n");
          } else if constexpr (std::is_same_v<T, TokensGenerated>) {
            for (const GeneratedToken& token : it.tokens) {
              absl::StrAppend(&out, token.scores_prompt ? "score " : "token ",
                              names_.at(token.request_id),
                              token.sequence_index > 0 ? absl::StrCat(".", token.sequence_index)
                                                       : std::string(),
                              " at ", token.outcome.position);
              if (!token.scores_prompt) absl::StrAppend(&out, ": ", token.outcome.token_id);
              absl::StrAppend(&out, "\n");
            }
          } else if constexpr (std::is_same_v<T, BeamsAdvanced>) {
            absl::StrAppend(&out, "beams ", names_.at(it.request_id), ": ", it.token_count, "\n");
          } else if constexpr (std::is_same_v<T, SequenceFinished>) {
            stop_token = it.stop_token;
            if (engine_->FindRequest(it.request_id)->sample_count > 1) {
              absl::StrAppend(&out, "sequence ", names_.at(it.request_id), ".", it.sequence_index,
                              " ", FinishReasonName(it.reason), ", ", it.completion_token_count,
                              " tokens");
              if (!it.tokens.empty()) {
                absl::StrAppend(&out, " ", absl::StrJoin(it.tokens, ","), " score ", it.score);
              }
              absl::StrAppend(&out, "\n");
            }
          } else if constexpr (std::is_same_v<T, RequestFinished>) {
            absl::StrAppend(&out, "finished ", names_.at(it.request_id), " ",
                            FinishReasonName(it.reason));
            if (stop_token) absl::StrAppend(&out, " ", *stop_token);
            stop_token.reset();
            absl::StrAppend(&out, ", ", it.prompt_token_count, "+", it.completion_token_count,
                            " tokens, cached ", it.cached_token_count, ", preempted ",
                            it.preemption_count, "\n");
            if (!it.status.ok()) absl::StrAppend(&out, "  ", StatusText(it.status), "\n");
          } else if constexpr (std::is_same_v<T, RequestRefused>) {
            absl::StrAppend(&out, "refused ", names_.at(it.request_id), "\n  ",
                            StatusText(it.status), "\n");
          } else if constexpr (std::is_same_v<T, PrefixCacheReset>) {
            absl::StrAppend(&out, "reset: ", StatusText(it.status), "\n");
          } else {
            in_flight_.clear();
            absl::StrAppend(&out, "rejected replica, epoch ", it.epoch.value(), "\n  ",
                            StatusText(it.status), "\n");
          }
        },
        action);
  }
  return out;
}

std::string TraceRunner::Inspect(const Command& command) const {
  if (command.verb == "queue") return absl::StrCat(JoinBlocks(engine_->ReuseOrder(1000)), "\n");
  if (command.verb == "lookup") {
    const auto salt = command.values.find("salt");
    const PrefixLookup hit =
        engine_->LookupPrefix(ParseRanges(command.values.at("prompt")),
                              salt == command.values.end() ? std::string() : salt->second);
    return absl::StrCat("hit ", hit.hit_token_count, " on ", JoinBlocks(hit.blocks), "\n");
  }
  if (command.verb == "table") {
    std::string out;
    const auto tables = engine_->BlockTablesOf(requests_.at(command.names.at(0)));
    if (tables.empty()) return "no such request\n";
    for (const BlockTableRecord& table : tables) {
      if (table.sequence_index > 0) absl::StrAppend(&out, ".", table.sequence_index, ": ");
      for (const BlockTableEntry& entry : table.entries) {
        absl::StrAppend(&out, &entry == &table.entries[0] ? "" : " ", entry.block.value(), "(",
                        entry.filled_token_count, entry.indexed ? " indexed" : "", " x",
                        entry.reference_count, ")");
      }
      absl::StrAppend(&out, table.entries.empty() ? "no blocks\n" : "\n");
    }
    return out;
  }
  CHECK_EQ(command.verb, "state") << "unknown command";
  const SchedulerState state = engine_->State();
  return absl::StrCat(
      "blocks ", state.free_blocks, " free, ", state.cached_blocks, " cached, ", state.held_blocks,
      " held (", state.returning_blocks, " returning, ", state.promised_blocks, " promised); ",
      state.running_sequences, " running, ", state.waiting_requests, " waiting, ",
      state.paused_sequences, " paused; ", state.steps_in_flight, " steps in flight; preemptions ",
      state.counters.preemptions, ", computed ", state.counters.computed_tokens, "\n");
}

std::string ReplayTrace(const std::string& text) {
  TraceRunner runner;
  std::string out;
  bool expectation = false;
  for (const absl::string_view view : absl::StrSplit(text, '\n')) {
    const std::string line(view);
    if (expectation) {
      if (!line.empty()) continue;
      expectation = false;
    }
    if (line.empty() || line[0] == '#') {
      absl::StrAppend(&out, line, "\n");
      continue;
    }
    if (line == "----") {
      expectation = true;
      continue;
    }
    absl::StrAppend(&out, line, "\n----\n", runner.Run(line));
  }
  while (out.size() > 1 && out[out.size() - 1] == '\n' && out[out.size() - 2] == '\n')
    out.pop_back();
  return out;
}

}  // namespace octavo
