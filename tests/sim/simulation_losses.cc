// Simulation: replicas that are lost, by chance or by a request that kills its worker wherever it
// computes one position.

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "tests/sim/simulation.h"

namespace octavo {

void Simulation::NoteOwners(const StepPlan& plan) {
  const auto is_known = [&](const PlanRow& row) { return owners_.contains(row.sequence_id); };
  if (std::all_of(plan.rows.begin(), plan.rows.end(), is_known)) return;
  for (const RequestRecord& request : engine_.ListRequests(0, UINT32_MAX)) {
    for (const SequenceRecord& sequence : request.sequences) {
      owners_[sequence.sequence_id] = {request.request_id, sequence.sequence_index};
    }
  }
}

void Simulation::NoteLoss() {
  std::set<RequestId> requests;
  for (const auto& [step, plan] : unanswered_) {
    for (const PlanRow& row : plan.rows) requests.insert(owners_.at(row.sequence_id).first);
  }
  if (requests.size() == 1) ++alone_losses_[*requests.begin()];
}

void Simulation::LoseReplica(const std::string& why) {
  NoteLoss();
  to_worker_.clear();  // results already on their way arrive late, with an old epoch
  unanswered_.clear();
  worker_.reset();
  Send(ReplicaLost{ReplicaId(0), Epoch(epoch_), absl::UnavailableError(why)});
}

bool Simulation::Kills(const StepPlan& plan) const {
  return std::any_of(plan.rows.begin(), plan.rows.end(), [&](const PlanRow& row) {
    const auto& [request, index] = owners_.at(row.sequence_id);
    const auto poison = poisons_.find(request);
    return index == 0 && poison != poisons_.end() && poison->second >= row.first_position &&
           poison->second - row.first_position < row.token_count;
  });
}

bool Simulation::IsGivenUp(absl::Status status) {
  const std::optional<StatusReason> reason = TakeReason(status);
  return reason && reason->reason == "KILLS_WORKER";
}

void Simulation::CheckGivenUp(RequestId request_id) {
  ++given_up_;
  if (alone_losses_[request_id] < 2) {
    Fail(absl::StrCat("request ", request_id.value(), " is given up after ",
                      alone_losses_[request_id], " losses while it was alone"));
  }
}

}  // namespace octavo
