#pragma once

// How a worker's memory is shared out, as a value that is printed at start, sent to the scheduler
// and checked against what an operator asks for. Pure arithmetic over figures that others measured.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "worker/device/backend.h"

namespace octavo {

// The pool a CPU worker takes unless told otherwise: this, or a quarter of what RAM and container
// leave if that is less.
constexpr uint64_t kDefaultCpuPoolBytes = uint64_t{4} << 30;

struct MemoryPlan {
  uint64_t total_bytes = 0;   // what machine and container have in all
  uint64_t weight_bytes = 0;  // repacked weights, norms and tables
  uint64_t file_backed_bytes =
      0;  // weights read in place from the mapped file, shared with the page cache
  uint64_t activation_bytes = 0;  // at the largest step
  uint64_t bytes_per_block = 0;
  uint64_t available_bytes =
      0;  // for the pool: what machine and container leave after weights, less the activations
  uint32_t max_blocks = 0;      // that fit in available_bytes
  uint32_t default_blocks = 0;  // what the worker takes unless told otherwise

  // "weights 98.3 MiB repacked + 29.9 MiB in place, activations …, pool 1,024 blocks of 360.0 KiB
  // (16 tokens), at most …".
  std::string Describe(const KvLayout& layout) const;
  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

MemoryPlan MakeMemoryPlan(const BackendMemory& memory, const KvLayout& layout);

// The blocks to take: `requested`, or the default where it is 0. ResourceExhausted with the numbers
// where they do not fit, or where not even one block does.
absl::StatusOr<uint32_t> ChooseBlockCount(const MemoryPlan& plan, const KvLayout& layout,
                                          uint32_t requested);

}  // namespace octavo
