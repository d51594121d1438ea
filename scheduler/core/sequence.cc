#include "scheduler/core/sequence.h"

#include <utility>

#include "glog/logging.h"

namespace octavo {

void Move(Sequence& sequence, SequenceState to) {
  CHECK(CanMove(sequence.state, to))
      << "sequence " << sequence.id << " cannot go from " << SequenceStateName(sequence.state)
      << " to " << SequenceStateName(to);
  sequence.state = to;
}

SequenceSlot SequenceStore::Add(Sequence sequence) {
  ++size_;
  if (free_.empty()) {
    slots_.push_back(std::move(sequence));
    return static_cast<SequenceSlot>(slots_.size() - 1);
  }
  const SequenceSlot slot = free_.back();
  free_.pop_back();
  slots_[slot] = std::move(sequence);
  return slot;
}

void SequenceStore::Remove(SequenceSlot slot) {
  CHECK(slots_[slot].state == SequenceState::kEnded);
  CHECK(slots_[slot].table.empty()) << "sequence " << slots_[slot].id << " still holds blocks";
  slots_[slot] = Sequence{.state = SequenceState::kEnded};
  free_.push_back(slot);
  --size_;
}

}  // namespace octavo
