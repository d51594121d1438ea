#pragma once

// A scheduler of a few lines for tests of the executor: runs requests side by side through step
// plans, with the schedule under the test's control (chunk size, who runs when, where blocks come
// from, preemption, two steps in flight). What it returns must not depend on any of that.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/step_plan.h"
#include "common/table_digest.h"
#include "glog/logging.h"
#include "tests/unit/worker/exec/loaded_model.h"
#include "worker/exec/executor.h"

namespace octavo {

struct Request {
  std::vector<TokenId> prompt;
  uint32_t max_tokens = 0;
  uint64_t seed = 0;
  SamplingParams sampling;
  bool scores = false;  // also the prompt's log-probabilities

  friend bool operator==(const Request&, const Request&) = default;
};

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;                 // of tokens
  std::vector<std::vector<TokenLogprob>> top;  // of tokens
  std::vector<float> scored;                   // of prompt tokens 1, 2, …
  std::vector<std::vector<TokenLogprob>> scored_top;
  bool failed = false;

  friend bool operator==(const Answer&, const Answer&) = default;
};

struct Schedule {
  uint32_t chunk = 512;         // prompt tokens of one sequence in one step
  uint32_t token_budget = 512;  // of a step
  uint32_t stagger = 0;         // steps between one request's first row and the next one's
  uint32_t preempt_every =
      0;  // steps after which the sequence in turn is released and computed again; 0: never
  uint64_t shuffle_seed = 0;  // where blocks come from; 0: in order
  bool pipelined = false;  // two steps in flight, decodes feed the token sampled in the step before
};

class Driver {
 public:
  explicit Driver(Executor& executor)
      : executor_(executor), step_(executor.GetState().step.value()) {}

  std::vector<Answer> Run(const std::vector<Request>& requests, const Schedule& schedule) {
    requests_ = &requests;
    schedule_ = schedule;
    answers_.assign(requests.size(), {});
    sequences_.assign(requests.size(), {});
    free_.clear();
    for (uint32_t block = executor_.num_blocks(); block-- > 0;) free_.push_back(BlockId(block));
    if (schedule.shuffle_seed != 0)
      std::shuffle(free_.begin(), free_.end(), std::mt19937_64(schedule.shuffle_seed));
    bool first = true;
    for (uint32_t turn = 0; !AllDone() || !in_flight_.empty(); ++turn) {
      StepPlan plan{.epoch = executor_.GetState().epoch,
                    .step = StepNumber(++step_),
                    .layer_groups = {LayerGroupChange{}}};
      plan.resets_state = std::exchange(first, false);
      if (plan.resets_state) tables_digest_ = 0;
      AddReleases(plan, turn);
      AddRows(plan, turn);
      if (plan.rows.empty() && plan.releases.empty()) {
        --step_;
        CHECK(!in_flight_.empty()) << "nothing to do and nothing in flight";
        TakeResult();
        continue;
      }
      plan.layer_groups[0].digest = tables_digest_;
      auto promise = std::make_shared<std::promise<absl::StatusOr<StepResult>>>();
      in_flight_.push_back(promise->get_future());
      executor_.Submit(plan, [promise](absl::StatusOr<StepResult> result) {
        promise->set_value(std::move(result));
      });
      if (!schedule_.pipelined || in_flight_.size() == kStepsInFlight) TakeResult();
    }
    ReleaseAll();
    return answers_;
  }

 private:
  struct Sequence {
    SequenceId id;
    bool started = false;
    std::vector<TokenId> known;  // prompt and the outputs that came back
    uint32_t computed = 0;       // tokens planned
    uint32_t planned_outputs = 0;
    std::vector<BlockId> table;
    uint32_t scored_to = 0;  // prompt tokens whose scores were asked for
  };

  bool Done(size_t i) const {
    const Sequence& s = sequences_[i];
    const Request& request = (*requests_)[i];
    if (answers_[i].failed) return true;
    return s.planned_outputs == request.max_tokens &&
           (request.max_tokens > 0 || s.computed == request.prompt.size());
  }
  bool AllDone() const {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (!Done(i)) return false;
    }
    return true;
  }

  void Release(StepPlan& plan, Sequence& s) {
    plan.releases.push_back(s.id);
    for (uint32_t index = 0; index < s.table.size(); ++index)
      tables_digest_ -= EntryDigest(s.id, index, s.table[index]);
    for (size_t index = s.table.size(); index-- > 0;) free_.push_back(s.table[index]);
    s.table.clear();
    s.started = false;
  }

  void AddReleases(StepPlan& plan, uint32_t turn) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (Done(i) && sequences_[i].started) Release(plan, sequences_[i]);
    }
    if (schedule_.preempt_every == 0 ||
        turn % schedule_.preempt_every != schedule_.preempt_every - 1)
      return;
    Sequence& victim = sequences_[(turn / schedule_.preempt_every) % sequences_.size()];
    // What is in flight of it must have come back, since it is computed again from what is known.
    while (!in_flight_.empty()) TakeResult();
    if (!victim.started || answers_[&victim - sequences_.data()].failed) return;
    Release(plan, victim);
    victim.computed = 0;
  }

  void AddRows(StepPlan& plan, uint32_t turn) {
    uint32_t budget = schedule_.token_budget;
    for (size_t i = 0; i < sequences_.size() && budget > 0; ++i) {
      if (Done(i) || turn < i * schedule_.stagger) continue;
      budget -= AddRow(plan, i, budget);
    }
  }

  uint32_t AddRow(StepPlan& plan, size_t i, uint32_t budget) {
    const Request& request = (*requests_)[i];
    Sequence& s = sequences_[i];
    if (!s.started) {
      if (s.known.empty()) s.known = request.prompt;
      s.id = SequenceId(++next_id_);
      s.started = true;
      SequenceStart start{.sequence_id = s.id,
                          .seed = request.seed,
                          .prompt_token_count = static_cast<uint32_t>(request.prompt.size()),
                          .sampling = request.sampling};
      if (request.scores || request.sampling.needs_history()) start.history = s.known;
      plan.starts.push_back(start);
    }
    const uint32_t total =
        static_cast<uint32_t>(request.prompt.size()) + s.planned_outputs;  // known or in flight
    const uint32_t count = std::min({total - s.computed, schedule_.chunk, budget});
    CHECK_GT(count, 0u);
    PlanRow row{.sequence_id = s.id, .first_position = s.computed, .token_count = count};
    s.computed += count;
    row.samples = s.computed == total && request.max_tokens > 0;
    row.feeds_sampled = s.computed > s.known.size();
    row.scores = request.scores && s.scored_to < request.prompt.size() && s.computed > s.scored_to;
    if (row.scores) s.scored_to = s.computed;
    if (row.samples) ++s.planned_outputs;
    for (uint32_t p = row.first_position; p < s.computed - (row.feeds_sampled ? 1 : 0); ++p) {
      plan.token_ids.push_back(s.known[p]);
    }
    plan.rows.push_back(row);
    LayerGroupChange& change = plan.layer_groups[0];
    change.new_block_counts.push_back(0);
    while (s.table.size() < executor_.layout().BlocksFor(s.computed)) {
      CHECK(!free_.empty()) << "the test's pool is too small";
      tables_digest_ += EntryDigest(s.id, static_cast<uint32_t>(s.table.size()), free_.back());
      s.table.push_back(free_.back());
      change.new_blocks.push_back(free_.back());
      free_.pop_back();
      ++change.new_block_counts.back();
    }
    return count;
  }

  void TakeResult() {
    absl::StatusOr<StepResult> answer = in_flight_.front().get();
    in_flight_.pop_front();
    CHECK(answer.ok()) << answer.status();
    size_t top = 0;
    const auto take_top = [&](const TokenOutcome& outcome) {
      const auto begin = answer->top.begin() + static_cast<std::ptrdiff_t>(top);
      top += outcome.top_count;
      return std::vector<TokenLogprob>(begin, begin + outcome.top_count);
    };
    for (const TokenOutcome& outcome : answer->sampled) {
      const std::vector<TokenLogprob> alternatives = take_top(outcome);
      const size_t i = IndexOf(outcome.sequence_id);
      if (i == sequences_.size()) continue;
      CHECK_EQ(outcome.position, sequences_[i].known.size());
      sequences_[i].known.push_back(outcome.token_id);
      answers_[i].tokens.push_back(outcome.token_id);
      answers_[i].logprobs.push_back(outcome.logprob);
      answers_[i].top.push_back(alternatives);
    }
    for (const TokenOutcome& outcome : answer->scored) {
      const std::vector<TokenLogprob> alternatives = take_top(outcome);
      const size_t i = IndexOf(outcome.sequence_id);
      // Computed again after preemption: the score is there already.
      if (i == sequences_.size() || outcome.position != answers_[i].scored.size() + 1) continue;
      answers_[i].scored.push_back(outcome.logprob);
      answers_[i].scored_top.push_back(alternatives);
    }
    for (SequenceId id : answer->failed) {
      if (const size_t i = IndexOf(id); i != sequences_.size()) answers_[i].failed = true;
    }
  }

  size_t IndexOf(SequenceId id) const {
    size_t i = 0;
    while (i < sequences_.size() && sequences_[i].id != id) ++i;
    return i;
  }

  void ReleaseAll() {
    StepPlan plan{.epoch = executor_.GetState().epoch,
                  .step = StepNumber(++step_),
                  .layer_groups = {LayerGroupChange{}}};
    for (Sequence& s : sequences_) {
      if (s.started) Release(plan, s);
    }
    plan.layer_groups[0].digest = tables_digest_;
    const absl::StatusOr<StepResult> result = executor_.Execute(plan);
    CHECK(result.ok()) << result.status();
    CHECK_EQ(executor_.GetState().sequence_count, 0u);
  }

  Executor& executor_;
  const std::vector<Request>* requests_ = nullptr;
  Schedule schedule_;
  std::vector<Answer> answers_;
  std::vector<Sequence> sequences_;
  std::vector<BlockId> free_;
  std::deque<std::future<absl::StatusOr<StepResult>>> in_flight_;
  uint64_t tables_digest_ = 0;
  uint64_t step_;
  uint64_t next_id_ = 0;
};

}  // namespace octavo
