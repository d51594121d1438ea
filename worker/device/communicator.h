#pragma once

// The seam between the ranks of a tensor-parallel replica. A backend is given one and calls it for
// AllReduce; the decoder never sees it. Sums go by one fixed binary tree over ranks, (0 + 1), (2 +
// 3), …, then pairs of those, so bits do not depend on who came first.
//
// Thread rule: called by one thread of a backend at a time, by every rank in the same order.

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"

namespace octavo {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t world_size() const = 0;

  // values = their sum over all ranks. Unavailable where a rank is gone: the replica is lost.
  virtual absl::Status AllReduceSum(std::span<float> values) = 0;
};

// `none`: the only rank of its replica. Every sum is already whole.
class SoloCommunicator : public Communicator {
 public:
  uint32_t rank() const override { return 0; }
  uint32_t world_size() const override { return 1; }
  absl::Status AllReduceSum(std::span<float>) override { return absl::OkStatus(); }
};

}  // namespace octavo
