#pragma once

// The backend of machines without a GPU: ops append commands to the step, a thread pool runs them
// in order, one barrier between two. The threads of the pool steal an op's work items in chunks;
// which thread takes which item moves no bit.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/isa.h"
#include "worker/device/backend.h"
#include "worker/device/communicator.h"

namespace octavo {

constexpr uint32_t kMaxCpuThreads = 256;

struct CpuBackendOptions {
  uint32_t threads = 0;  // 0: AvailableCores()
  kernels::Isa isa = kernels::DetectIsa();
  std::unique_ptr<Communicator> communicator;  // null: the only rank
};

// "auto" (the best there is), "scalar", "avx2". InvalidArgument naming the choices;
// FailedPrecondition where this machine lacks it.
absl::StatusOr<kernels::Isa> ParseIsa(absl::string_view name);

// InvalidArgument where threads exceed kMaxCpuThreads, FailedPrecondition where the machine lacks
// the instruction set.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(CpuBackendOptions options);

}  // namespace octavo
