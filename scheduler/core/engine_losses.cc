// Engine: a replica is lost, with all its KV. Nobody's stream ends with it: its sequences wait with
// the tokens they have, and go on with the next replica.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "scheduler/core/engine.h"

namespace octavo {
namespace {

absl::Status KillsItsWorker(const LostRow& row, const absl::Status& why) {
  const uint32_t end = row.first_position + row.token_count;
  return WithReason(
      absl::InternalError(absl::StrCat(
          "the worker was lost twice while it computed positions ", row.first_position, " to ",
          end - 1, " of this request and nothing else, so the request is given up; the last time: ",
          PlainText(why))),
      "KILLS_WORKER", {{"first_position", row.first_position}, {"token_count", row.token_count}});
}

}  // namespace

void Engine::Reject(const absl::Status& status, absl::Time now, Actions& actions) {
  actions.push_back(ReplicaRejected{replica_->id, replica_->epoch, status});
  LoseReplica(status, now, actions);
}

void Engine::On(const ReplicaLost& event, absl::Time now, Actions& actions) {
  if (!replica_ || event.replica_id != replica_->id || event.epoch != replica_->epoch) return;
  LoseReplica(event.status, now, actions);
}

void Engine::LoseReplica(const absl::Status& status, absl::Time now, Actions& actions) {
  ++counters_.replica_losses;
  const std::optional<LostRow> guilty = TryInFlight();
  RollBackSteps();
  if (kv_recorder_ != nullptr) {
    kv_recorder_->OnCleared(KvClearReason::kReplicaLost);
    replica_->ledger.RecordInto(nullptr);  // what its sequences leave behind goes with it
  }
  while (!replica_->running.empty()) Requeue(replica_->running.back());
  drain_rate_.Restart(now);  // the next replica has its own pace
  evicted_before_ += replica_->ledger.evicted_count();
  replica_.reset();
  for (const auto& [id, request] : requests_) {
    for (const SequenceSlot slot : request->sequences) sequences_[slot].last_step = {};
  }
  if (!guilty) return;
  FinishRequest(*requests_.at(guilty->request_id),
                {.reason = FinishReason::kError, .status = KillsItsWorker(*guilty, status)}, now,
                actions);
}

std::optional<LostRow> Engine::TryInFlight() {
  // Under the other policies a batch may be closed to who is to be tried.
  if (options_.kv_policy != KvPolicy::kPaged) return std::nullopt;
  std::vector<LostRow> rows;
  for (const StepInFlight& flight : replica_->in_flight) {
    for (const RowInFlight& row : flight.rows) {
      const Sequence* sequence = sequences_.Find(row.slot, row.sequence_id);
      if (sequence == nullptr) continue;
      rows.push_back({.step = flight.step,
                      .request_id = sequence->request->id,
                      .sequence_index = sequence->index,
                      .first_position = row.first_position,
                      .token_count = row.token_count});
    }
  }
  return trials_.OnLoss(rows);
}

void Engine::ClearSuspects() {
  // Who is paused may be so for long, and is not waited for.
  const auto computes = [this](const LossTrials::Suspect& suspect) {
    const Request* request = FindLive(suspect.request_id);
    return request != nullptr &&
           std::any_of(request->sequences.begin(), request->sequences.end(), [&](SequenceSlot it) {
             return sequences_[it].written < suspect.end && !sequences_[it].is_paused();
           });
  };
  while (trials_.active()) {
    const std::vector<LossTrials::Suspect>& pending = trials_.pending();
    const auto cleared = std::find_if_not(pending.begin(), pending.end(), computes);
    if (cleared == pending.end()) return;
    trials_.Clear(cleared->request_id);
  }
}

}  // namespace octavo
