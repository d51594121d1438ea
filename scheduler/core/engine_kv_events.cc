// Engine: what happens to the prefix index, told to whoever listens (kv_events.h).

#include <utility>

#include "glog/logging.h"
#include "scheduler/core/engine.h"

namespace octavo {

void Engine::RecordKvEvents(bool on) {
  if (on == (kv_recorder_ != nullptr)) return;
  if (replica_) replica_->ledger.RecordInto(nullptr);
  kv_recorder_ = on ? std::make_unique<KvEventRecorder>() : nullptr;
  AttachRecorder();
}

void Engine::AttachRecorder() {
  if (kv_recorder_ == nullptr || !replica_) return;
  kv_recorder_->Begin(replica_->epoch, replica_->last_settled);
  replica_->ledger.RecordInto(kv_recorder_.get());
  if (replica_->in_flight.empty()) return;
  // What steps in flight fill is stored when they are done.
  const PrefixIndex& index = replica_->ledger.index();
  std::vector<BlockStored> indexed;
  index.ListStored(indexed);
  for (BlockStored& stored : indexed) {
    const StepNumber valid_from = index.ValidFrom(stored.block);
    if (valid_from > replica_->last_settled) kv_recorder_->OnStored(std::move(stored), valid_from);
  }
}

std::vector<KvEvent> Engine::TakeKvEvents() {
  return kv_recorder_ == nullptr ? std::vector<KvEvent>() : kv_recorder_->Take();
}

std::vector<KvEvent> Engine::KvSnapshot() const {
  CHECK(kv_recorder_ != nullptr);
  std::vector<KvEvent> events = {
      {replica_ ? replica_->epoch : Epoch(), BlocksCleared{.reason = KvClearReason::kSnapshot}}};
  if (!replica_) return events;
  const PrefixIndex& index = replica_->ledger.index();
  std::vector<BlockStored> indexed;
  index.ListStored(indexed);
  events.reserve(1 + indexed.size());
  for (BlockStored& stored : indexed) {
    if (index.ValidFrom(stored.block) <= replica_->last_settled)
      events.push_back({replica_->epoch, std::move(stored)});
  }
  std::get<BlocksCleared>(events[0].change).stored_count = events.size() - 1;
  return events;
}

}  // namespace octavo
