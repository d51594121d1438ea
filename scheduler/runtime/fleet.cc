#include "scheduler/runtime/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "glog/logging.h"

namespace octavo {
namespace {

constexpr ReplicaId kReplica{0};
constexpr absl::Duration kFirstRetry = absl::Milliseconds(200);
constexpr absl::Duration kLastRetry = absl::Seconds(30);
// A worker that is no part of the replica is forgotten when it has been silent this long.
constexpr absl::Duration kForgetAfter = absl::Minutes(1);

std::string Hex(uint64_t value) { return absl::StrCat("0x", absl::Hex(value, absl::kZeroPad16)); }

}  // namespace

const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kRegistered:
      return "registered";
    case WorkerState::kLoading:
      return "loading";
    case WorkerState::kReady:
      return "ready";
    case WorkerState::kLost:
      return "lost";
  }
  return "unknown";
}

Fleet::Fleet(FleetOptions options, WorkerDialer* dialer, WorkerEvents* events)
    : options_(std::move(options)), dialer_(dialer), worker_events_(events) {}

absl::Status Fleet::CheckDescription(const WorkerDescription& worker) const {
  if (worker.instance_id.empty())
    return absl::InvalidArgumentError("instance_id is empty; make one at each start");
  if (worker.address.empty())
    return absl::InvalidArgumentError("address is empty; give the target of WorkerService");
  if (worker.model_fingerprint != options_.model_fingerprint) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "another model: the worker's file has fingerprint ",
                          Hex(worker.model_fingerprint), ", the scheduler serves ",
                          Hex(options_.model_fingerprint), "; start both with the same --model")),
                      "ANOTHER_MODEL",
                      {{"worker_fingerprint", worker.model_fingerprint},
                       {"served_fingerprint", options_.model_fingerprint}});
  }
  const uint32_t block_size = options_.layout.block_size;
  if (block_size < worker.min_block_size || block_size > worker.max_block_size) {
    return WithReason(absl::InvalidArgumentError(
                          absl::StrCat("block size ", block_size, " is outside the worker's range ",
                                       worker.min_block_size, " to ", worker.max_block_size)),
                      "BLOCK_SIZE_UNSUPPORTED",
                      {{"block_size", block_size},
                       {"min_block_size", worker.min_block_size},
                       {"max_block_size", worker.max_block_size}});
  }
  const std::vector<std::string>& dtypes = worker.kv_dtypes;
  if (!options_.kv_dtype.empty() &&
      std::find(dtypes.begin(), dtypes.end(), options_.kv_dtype) == dtypes.end()) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "--kv_dtype=", options_.kv_dtype,
                          " is not among the worker's types: ", absl::StrJoin(dtypes, ", "))),
                      "KV_DTYPE_UNSUPPORTED",
                      {{"kv_dtype", options_.kv_dtype}, {"kv_dtypes", absl::StrJoin(dtypes, ",")}});
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerState> Fleet::Register(const WorkerDescription& worker, bool draining,
                                            absl::Time now, std::vector<Event>& events) {
  OCTAVO_RETURN_IF_ERROR(CheckDescription(worker));
  Forget(now);
  auto known = workers_.find(worker.instance_id);
  if (known == workers_.end()) {
    if (draining) {
      return WithReason(absl::UnavailableError("the scheduler drains and takes no new workers"),
                        "DRAINING");
    }
    if (workers_.size() >= kMaxWorkers) {
      return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                            "the scheduler knows ", kMaxWorkers, " workers, its limit")),
                        "FLEET_FULL", {{"limit", kMaxWorkers}});
    }
    // A new process at an address of the replica's: the old process is gone, whether or not its end
    // was seen.
    if (link_ != nullptr && workers_[link_->instance_id].description.address == worker.address) {
      Lose(absl::UnavailableError(absl::StrCat("worker at ", worker.address, " started anew")), now,
           &events);
    }
    LOG(INFO) << "worker " << worker.instance_id << " registered: " << worker.address << ", "
              << worker.device;
    known = workers_.emplace(worker.instance_id, KnownWorker{}).first;
  }
  known->second.description = worker;
  known->second.last_seen = now;
  AdoptIfNeeded(now);
  return known->second.state;
}

void Fleet::Forget(absl::Time now) {
  for (auto entry = workers_.begin(); entry != workers_.end();) {
    const bool silent = now - entry->second.last_seen > kForgetAfter;
    entry = silent && entry->first != replica_instance() ? workers_.erase(entry) : std::next(entry);
  }
}

// Dials the worker seen last among those that wait, if there is no link.
void Fleet::AdoptIfNeeded(absl::Time now) {
  if (link_ != nullptr) return;
  KnownWorker* best = nullptr;
  for (auto& [instance, worker] : workers_) {
    const bool answers = now - worker.last_seen <= 3 * options_.heartbeat;
    if (!answers || worker.retry_at > now) continue;
    if (best == nullptr || worker.failures < best->failures) best = &worker;
  }
  if (best == nullptr) return;
  link_ = std::make_unique<Link>();
  link_->id = LinkId(++last_link_);
  link_->instance_id = best->description.instance_id;
  link_->client = dialer_->Dial(best->description.address, link_->id, worker_events_);
  best->state = WorkerState::kLoading;
  best->detail = "loading the model";
  LOG(INFO) << "worker " << link_->instance_id << ": loading the model";
  link_->client->LoadModel({.model_fingerprint = options_.model_fingerprint,
                            .rank = 0,
                            .world_size = 1,
                            .block_size = options_.layout.block_size,
                            .kv_dtype = options_.kv_dtype,
                            .max_step_tokens = options_.max_step_tokens,
                            .max_sequences = options_.max_sequences});
}

void Fleet::OnModelLoaded(LinkId link, const absl::StatusOr<LoadedModel>& loaded, absl::Time now,
                          std::vector<Event>& events) {
  if (!IsCurrent(link)) return;
  if (!loaded.ok()) return Lose(loaded.status(), now, &events);
  const absl::StatusOr<KvType> type = ParseKvType(loaded->kv_dtype);
  if (!type.ok()) return Lose(type.status(), now, &events);
  link_->layout = options_.layout;
  link_->layout.kv_type = *type;
  if (link_->layout.Fingerprint() != loaded->kv_layout_fingerprint) {
    return Lose(
        absl::FailedPreconditionError(absl::StrCat(
            "KV layouts differ: the worker's fingerprint is ", Hex(loaded->kv_layout_fingerprint),
            ", the scheduler's ", Hex(link_->layout.Fingerprint()))),
        now, &events);
  }
  const absl::StatusOr<uint32_t> block_count =
      ChooseBlockCount(options_.pool_size, loaded->memory_plan, options_.max_pool_blocks);
  if (!block_count.ok()) return Lose(block_count.status(), now, &events);
  link_->loaded = *loaded;
  link_->pool = MakePoolPlan(options_.pool_size, loaded->memory_plan, *block_count, link_->layout,
                             options_.context_length, options_.max_sequences);
  if (options_.context_length_asked) {
    const absl::Status holds =
        CheckHoldsOne(link_->pool, loaded->memory_plan, link_->layout, options_.context_length);
    if (!holds.ok()) return Lose(holds, now, &events);
  }
  last_epoch_ = std::max(last_epoch_ + 1,
                         static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMillis(now))));
  link_->epoch = Epoch(last_epoch_);
  workers_[link_->instance_id].detail = "starting the replica";
  LOG(INFO) << "worker " << link_->instance_id << ": starting replica 0 in epoch " << link_->epoch
            << ", " << loaded->kv_dtype
            << "; memory: " << DescribeMemory(loaded->memory_plan, link_->pool, link_->layout);
  link_->client->StartReplica(
      {.replica_id = kReplica,
       .epoch = link_->epoch,
       .block_count = link_->pool.block_count,
       .lease_ms = static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.lease))});
}

void Fleet::OnReplicaStarted(LinkId link, const absl::Status& status, absl::Time now,
                             std::vector<Event>& events) {
  if (!IsCurrent(link)) return;
  if (!status.ok()) return Lose(status, now, &events);
  link_->running = true;
  link_->last_progress = now;
  link_->client->OpenStream();
  KnownWorker& worker = workers_[link_->instance_id];
  worker.state = WorkerState::kReady;
  worker.detail.clear();
  worker.failures = 0;
  LOG(INFO) << "worker " << link_->instance_id << ": replica 0 is ready";
  events.push_back(ReplicaReady{
      .replica_id = kReplica,
      .epoch = link_->epoch,
      .layer_groups = {{.layout = link_->layout, .block_count = link_->pool.block_count}}});
}

std::optional<StepSample> Fleet::OnResult(LinkId link, StepResult result, absl::Time now,
                                          std::vector<Event>& events) {
  if (!IsCurrent(link)) return std::nullopt;
  std::optional<StepSample> sample;
  std::deque<PlanInFlight>& in_flight = link_->in_flight;
  if (!in_flight.empty() && result.epoch == link_->epoch && result.step == in_flight.front().step) {
    const PlanInFlight& plan = in_flight.front();
    sample = StepSample{.row_count = plan.row_count,
                        .token_count = plan.token_count,
                        .duration = now - std::max(plan.sent, link_->last_progress),
                        .timings = result.timings};
    in_flight.pop_front();
    link_->last_progress = now;
  }
  events.push_back(StepCompleted{std::move(result)});
  return sample;
}

void Fleet::OnStreamEnded(LinkId link, const absl::Status& status, absl::Time now,
                          std::vector<Event>& events) {
  if (!IsCurrent(link)) return;
  if (status.code() == absl::StatusCode::kFailedPrecondition && !link_->in_flight.empty()) {
    const StepNumber step = link_->in_flight.front().step;
    LOG(WARNING) << "worker " << link_->instance_id << " refused step " << step
                 << ", resynchronising: " << status.message();
    link_->in_flight.clear();
    link_->last_progress = now;
    link_->client->OpenStream();
    events.push_back(
        StepRefused{.replica_id = kReplica, .epoch = link_->epoch, .step = step, .status = status});
    return;
  }
  Lose(status.ok() ? absl::UnavailableError("the worker ended its stream") : status, now, &events);
}

void Fleet::SendPlan(const StepPlan& plan, absl::Time now) {
  if (link_ == nullptr || link_->epoch != plan.epoch) return;
  uint32_t tokens = 0;
  for (const PlanRow& row : plan.rows) tokens += row.token_count;
  link_->in_flight.push_back({.step = plan.step,
                              .row_count = static_cast<uint32_t>(plan.rows.size()),
                              .token_count = tokens,
                              .sent = now});
  link_->client->SendPlan(plan);
}

void Fleet::DropReplica(Epoch epoch, const absl::Status& status, absl::Time now) {
  if (link_ != nullptr && link_->epoch == epoch) Lose(status, now, nullptr);
}

void Fleet::Lose(const absl::Status& status, absl::Time now, std::vector<Event>* events) {
  const std::unique_ptr<Link> lost = std::move(link_);
  KnownWorker& worker = workers_[lost->instance_id];
  worker.state = WorkerState::kLost;
  worker.detail =
      status.ToString(absl::StatusToStringMode::kDefault & ~absl::StatusToStringMode::kWithPayload);
  const absl::Duration wait =
      std::min(kLastRetry, kFirstRetry * (1 << std::min(worker.failures, 10u)));
  ++worker.failures;
  worker.retry_at = now + wait;
  LOG(WARNING) << "worker " << lost->instance_id << " lost: " << worker.detail;
  if (lost->running && events != nullptr) {
    events->push_back(ReplicaLost{.replica_id = kReplica, .epoch = lost->epoch, .status = status});
  }
}

void Fleet::CheckDeadline(absl::Time now, std::vector<Event>& events) {
  if (now < NextDeadline()) return;
  const PlanInFlight& oldest = link_->in_flight.front();
  Lose(absl::DeadlineExceededError(absl::StrCat(
           "step ", oldest.step.value(), " of ", oldest.token_count, " tokens is unanswered after ",
           absl::FormatDuration(now - std::max(oldest.sent, link_->last_progress)),
           "; the worker hangs")),
       now, &events);
}

absl::Time Fleet::NextDeadline() const {
  if (link_ == nullptr || link_->in_flight.empty()) return absl::InfiniteFuture();
  const PlanInFlight& oldest = link_->in_flight.front();
  const double scale = 1.0 + static_cast<double>(oldest.token_count) / kStepDeadlineTokens;
  return std::max(oldest.sent, link_->last_progress) + options_.step_deadline * scale;
}

std::optional<MemoryPlan> Fleet::memory_plan() const {
  if (link_ == nullptr || !link_->loaded) return std::nullopt;
  return link_->loaded->memory_plan;
}

std::optional<PoolPlan> Fleet::pool_plan() const {
  if (link_ == nullptr || !link_->loaded) return std::nullopt;
  return link_->pool;
}

std::string Fleet::kv_dtype() const {
  return link_ == nullptr || !link_->loaded ? options_.kv_dtype : link_->loaded->kv_dtype;
}

std::string Fleet::detail() const {
  if (ready()) return "";
  if (link_ != nullptr)
    return absl::StrCat("worker ", link_->instance_id, ": ",
                        workers_.at(link_->instance_id).detail);
  if (workers_.empty()) return "no worker has registered";
  for (const auto& [instance, worker] : workers_) {
    if (worker.state == WorkerState::kLost)
      return absl::StrCat("worker ", instance, " is lost: ", worker.detail);
  }
  return "no worker answers";
}

}  // namespace octavo
