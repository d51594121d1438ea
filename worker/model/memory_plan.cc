#include "worker/model/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo {
namespace {

std::string Mib(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

MemoryPlan MakeMemoryPlan(const BackendMemory& memory, const KvLayout& layout) {
  MemoryPlan plan{.total_bytes = memory.total_bytes,
                  .weight_bytes = memory.weight_bytes,
                  .file_backed_bytes = memory.file_bytes,
                  .activation_bytes = memory.activation_bytes,
                  .bytes_per_block = layout.bytes_per_block()};
  // Activations are address space until a step needs them, so what is available now must still hold
  // them.
  plan.available_bytes =
      memory.available_bytes - std::min(memory.available_bytes, memory.activation_bytes);
  const auto blocks_in = [&](uint64_t bytes) {
    return static_cast<uint32_t>(std::min<uint64_t>(bytes / plan.bytes_per_block, UINT32_MAX));
  };
  plan.max_blocks = blocks_in(plan.available_bytes);
  plan.default_blocks = blocks_in(std::min(kDefaultCpuPoolBytes, plan.available_bytes / 4));
  return plan;
}

std::string MemoryPlan::Describe(const KvLayout& layout) const {
  return absl::StrCat("weights ", Mib(weight_bytes), " repacked and ", Mib(file_backed_bytes),
                      " in place, activations up to ", Mib(activation_bytes), ", ",
                      Mib(available_bytes), " left for the pool: ", default_blocks, " blocks of ",
                      layout.block_size, " tokens (", bytes_per_block,
                      " bytes each) by default, at most ", max_blocks);
}

absl::StatusOr<uint32_t> ChooseBlockCount(const MemoryPlan& plan, const KvLayout& layout,
                                          uint32_t requested) {
  const uint32_t blocks = requested == 0 ? plan.default_blocks : requested;
  if (blocks >= 1 && blocks <= plan.max_blocks) return blocks;
  if (requested == 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no pool fits: one block of ", layout.block_size, " tokens takes ", plan.bytes_per_block,
        " bytes, a quarter of the ", plan.available_bytes,
        " bytes left is less; free memory, take a smaller block_size, or set num_blocks"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "num_blocks is ", requested, ", which takes ", uint64_t{requested} * plan.bytes_per_block,
      " bytes (", plan.bytes_per_block, " a block of ", layout.block_size, " tokens); ",
      plan.available_bytes, " bytes are left, enough for ", plan.max_blocks,
      " blocks; weights take ", plan.weight_bytes, " and ", plan.file_backed_bytes,
      " in place, activations up to ", plan.activation_bytes));
}

}  // namespace octavo
