#pragma once

// The backend of machines without a GPU: ops append commands to the step, a thread pool runs them
// in order, one barrier between two. The threads of the pool steal an op's work items in chunks;
// which thread takes which item moves no bit.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/backend.h"
#include "worker/device/communicator.h"

namespace octavo {

// Instruction sets to choose kernels from. The same bits in all of them.
enum class CpuIsa : uint8_t { kAuto, kScalar, kAvx2 };

// "auto", "scalar", "avx2". InvalidArgument naming the choices.
absl::StatusOr<CpuIsa> ParseCpuIsa(absl::string_view name);

struct CpuBackendOptions {
  uint32_t threads = 0;  // 0: the cores this process may use (AvailableCores)
  CpuIsa isa = CpuIsa::kAuto;
  std::unique_ptr<Communicator> communicator;  // null: the only rank
};

// Cores this process may use: its affinity mask, cut to the container's CPU quota (rounded up), at
// least 1.
uint32_t AvailableCores();

// Memory of the machine, cut to the container's limit: all of it, and what this process can still
// take.
struct MachineMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
};
MachineMemory ReadMachineMemory();

// FailedPrecondition where the machine lacks the instruction set asked for; InvalidArgument where
// threads exceed kMaxCpuThreads.
constexpr uint32_t kMaxCpuThreads = 256;
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(CpuBackendOptions options);

}  // namespace octavo
