#pragma once

// Strong integer ids. Each names one kind of thing, so that a block is never passed where a
// sequence is meant.

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace octavo {

template <typename Tag, typename Int>
class StrongId {
 public:
  using Value = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << +id.value_; }
  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  Int value_ = 0;
};

using TokenId = int32_t;  // 0 <= id < vocabulary size

using BlockId = StrongId<struct BlockIdTag, uint32_t>;  // a page of the replica's pool, 0-based
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;  // one token stream; never reused
using RequestId = StrongId<struct RequestIdTag, uint64_t>;    // what a client sent; never reused
using ReplicaId = StrongId<struct ReplicaIdTag, uint32_t>;
using LayerGroup = StrongId<struct LayerGroupTag, uint32_t>;  // layers of one attention type
using Epoch = StrongId<struct EpochTag, uint64_t>;  // rises whenever a replica is lost or re-formed
using StepNumber = StrongId<struct StepNumberTag, uint64_t>;  // 1, 2, … within an epoch

}  // namespace octavo
