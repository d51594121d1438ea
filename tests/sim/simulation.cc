#include "tests/sim/simulation.h"

#include "absl/strings/str_cat.h"

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

}  // namespace octavo
