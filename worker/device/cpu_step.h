#pragma once

// A step of the CPU backend: its inputs, the commands recorded from them, and the work lists and
// scratch that the commands point into. The same step is recorded again and again and keeps its
// memory.
//
// Thread rule: as worker/device/step.h.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/paged_attention.h"
#include "worker/device/command_list.h"
#include "worker/device/pages.h"
#include "worker/device/step.h"
#include "worker/device/thread_pool.h"

namespace octavo {

// One layer group's attention: how its rows fall into work items, the same for all its layers.
struct CpuAttention {
  bool planned = false;  // since Begin
  kernels::AttentionPlan plan;
  Pages scratch;  // partials of long rows; grows to the largest step seen
};

class CpuStep : public Step {
 public:
  ~CpuStep() override { ThreadPool::WaitReleased(commands); }

  CommandList commands;
  std::vector<TokenId>
      tokens;  // [token_count]: inputs with the fed ones resolved, written by Embed
  std::vector<int32_t> fed_slots;       // [token_count]: the slot a token comes from, or -1
  std::vector<CpuAttention> attention;  // [layer_group_count]
  std::vector<std::vector<uint16_t>> copy_scratch;  // [layer_group_count]
  absl::Status status;                              // of the communicator
  uint64_t started_ns = 0;                          // stamped by commands
  uint64_t choose_started_ns = 0;
};

}  // namespace octavo
