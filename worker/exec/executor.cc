#include "worker/exec/executor.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "worker/exec/sequence_tables.h"
#include "worker/exec/step_inputs.h"
#include "worker/model/kv_cache.h"
#include "worker/model/model.h"

namespace octavo {
namespace {

uint64_t NanosecondsSince(std::chrono::steady_clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count());
}

class PipelinedExecutor : public Executor {
 public:
  PipelinedExecutor(Model& model, const ExecutorOptions& options, std::unique_ptr<KvCache> cache,
                    const TableLimits& limits)
      : model_(model),
        options_(options),
        cache_(std::move(cache)),
        tables_(options.replica_id, options.epoch, limits) {
    for (Slot& slot : slots_) slot.step = model_.backend().CreateStep();
    finisher_ = std::thread([this] { FinishLoop(); });
  }

  ~PipelinedExecutor() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    queue_changed_.notify_all();
    finisher_.join();
    for (Slot& slot : slots_) slot.step.reset();
  }

  const KvLayout& layout() const override { return cache_->layout(); }
  uint32_t num_blocks() const override { return cache_->num_blocks(); }
  uint32_t max_sequences() const override { return tables_.limits().max_sequences; }
  uint32_t max_tokens_per_step() const override { return tables_.limits().max_tokens_per_step; }

  ExecutorState GetState() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return {.epoch = tables_.epoch(),
            .step = tables_.step(),
            .sequence_count = static_cast<uint32_t>(tables_.sequence_count()),
            .digests = tables_.digests()};
  }

  void Submit(const StepPlan& plan, Done done) override {
    absl::Status refused;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      refused = Enqueue(plan, done);
    }
    if (!refused.ok()) {
      done(std::move(refused));
      return;
    }
    queue_changed_.notify_all();
  }

 private:
  // A step that runs, or an answer that waits its turn behind the steps before it.
  struct Entry {
    size_t slot = kNoSlot;  // of a step that runs
    absl::Status refused;   // else this, if not ok
    Epoch epoch;            // else the stored result of this step
    StepNumber step;
    Done done;
  };
  static constexpr size_t kNoSlot = SIZE_MAX;
  static constexpr size_t kMaxQueuedAnswers = 16;

  struct Slot {
    std::unique_ptr<Step> step;
    StepLabel label;
    uint64_t prepare_ns = 0;
    bool busy = false;
  };

  // Under the lock. Takes `done` and returns ok, or leaves it and returns why the plan is not even
  // queued.
  absl::Status Enqueue(const StepPlan& plan, Done& done) {
    if (lost_.has_value()) return *lost_;
    if (queue_.size() >= kMaxQueuedAnswers) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxQueuedAnswers, " answers are waiting; read them first"));
    }
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<SequenceTables::Order> order = tables_.CheckOrder(plan);
    if (order.ok() && *order == SequenceTables::Order::kRepeated) {
      queue_.push_back({.epoch = plan.epoch, .step = plan.step, .done = std::move(done)});
      return absl::OkStatus();
    }
    if (order.ok() && steps_in_flight_ == kStepsInFlight) {
      return absl::ResourceExhaustedError(
          absl::StrCat("step ", plan.step.value(), " comes while ", kStepsInFlight,
                       " steps are in flight; wait for the result of the oldest"));
    }
    absl::Status checked = order.ok() ? tables_.Check(plan) : order.status();
    if (!checked.ok()) {
      queue_.push_back({.refused = std::move(checked), .done = std::move(done)});
      return absl::OkStatus();
    }
    const size_t index = FreeSlot();
    Slot& slot = slots_[index];
    tables_.Apply(plan);
    FillStepInputs(plan, tables_, slot.step->inputs, slot.label);
    model_.decoder().Record(*slot.step, cache_->pool());
    slot.busy = true;
    slot.prepare_ns = NanosecondsSince(start);
    model_.backend().Submit(*slot.step);
    ++steps_in_flight_;
    queue_.push_back({.slot = index, .done = std::move(done)});
    return absl::OkStatus();
  }

  size_t FreeSlot() const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].busy) return i;
    }
    LOG(FATAL) << "more steps in flight than slots";
    return 0;
  }

  void FinishLoop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      queue_changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const size_t slot = queue_.front().slot;
      absl::Status status;
      if (slot != kNoSlot) {
        lock.unlock();
        status = model_.backend().Await(*slots_[slot].step);
        lock.lock();
      }
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      absl::StatusOr<StepResult> answer = Finish(entry, status);
      lock.unlock();
      entry.done(std::move(answer));
      entry.done = nullptr;
      lock.lock();
    }
  }

  // Under the lock.
  absl::StatusOr<StepResult> Finish(const Entry& entry, const absl::Status& status) {
    if (!entry.refused.ok()) return entry.refused;
    if (entry.slot == kNoSlot) {
      for (const StepResult& result : stored_) {
        if (result.epoch == entry.epoch && result.step == entry.step) return result;
      }
      return lost_.value_or(absl::InternalError("a repeated step has no stored result"));
    }
    Slot& slot = slots_[entry.slot];
    slot.busy = false;
    --steps_in_flight_;
    if (!status.ok() && !lost_.has_value()) {
      lost_ = absl::InternalError(absl::StrCat("the device is lost at step ",
                                               slot.label.step.value(), ": ", status.message()));
    }
    if (lost_.has_value()) return *lost_;
    StepResult result = MakeStepResult(slot.label, slot.step->inputs, slot.step->outputs);
    result.rank = options_.rank;
    result.timings.prepare_ns = slot.prepare_ns;
    stored_.push_back(result);
    if (stored_.size() > kStoredResults) stored_.pop_front();
    return result;
  }

  Model& model_;
  const ExecutorOptions options_;
  std::unique_ptr<KvCache> cache_;
  // One step more than can be in flight: pool threads may still look at the one that was just
  // awaited.
  std::array<Slot, kStepsInFlight + 1> slots_;

  mutable std::mutex mutex_;  // guards all below, and recording
  std::condition_variable queue_changed_;
  SequenceTables tables_;
  std::deque<Entry> queue_;  // in the order of answers
  std::deque<StepResult> stored_;
  uint32_t steps_in_flight_ = 0;
  std::optional<absl::Status> lost_;
  bool stopping_ = false;
  std::thread finisher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Model& model,
                                                           const ExecutorOptions& options) {
  const KvLayout layout = model.MakeKvLayout(options.block_size, options.kv_type);
  OCTAVO_RETURN_IF_ERROR(layout.Validate());
  if (options.max_sequences < 1 || options.max_sequences > kMaxSequences) {
    return absl::InvalidArgumentError(absl::StrCat("max_sequences is ", options.max_sequences,
                                                   "; it must be 1 to ", kMaxSequences));
  }
  OCTAVO_ASSIGN_OR_RETURN(const uint32_t num_blocks,
                          ChooseBlockCount(model.Plan(layout), layout, options.num_blocks));
  OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<KvCache> cache,
                          KvCache::Create(model.backend(), layout, num_blocks));
  model.backend().CreateSequenceSlots(options.max_sequences, model.config().vocab_size);
  const TableLimits limits{.layer_group_count = 1,
                           .num_blocks = num_blocks,
                           .block_size = options.block_size,
                           .vocab_size = model.config().vocab_size,
                           .max_positions = model.config().context_length,
                           .max_sequences = options.max_sequences,
                           .max_tokens_per_step = model.limits().max_tokens_per_step};
  return std::make_unique<PipelinedExecutor>(model, options, std::move(cache), limits);
}

absl::StatusOr<StepResult> Executor::Execute(const StepPlan& plan) {
  std::promise<absl::StatusOr<StepResult>> answer;
  Submit(plan,
         [&answer](absl::StatusOr<StepResult> result) { answer.set_value(std::move(result)); });
  return answer.get_future().get();
}

}  // namespace octavo
