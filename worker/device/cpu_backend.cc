#include "worker/device/cpu_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/device/cpu_ops.h"
#include "worker/device/machine.h"

namespace octavo {

absl::StatusOr<kernels::Isa> ParseIsa(absl::string_view name) {
  if (name == "auto") return kernels::DetectIsa();
  for (kernels::Isa isa : {kernels::Isa::kScalar, kernels::Isa::kAvx2}) {
    if (name != kernels::IsaName(isa)) continue;
    if (isa <= kernels::DetectIsa()) return isa;
    return absl::FailedPreconditionError(absl::StrCat("isa is \"", name,
                                                      "\", which this machine lacks; it has ",
                                                      kernels::IsaName(kernels::DetectIsa())));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("isa is \"", name, "\"; it must be auto, scalar or avx2"));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(CpuBackendOptions options) {
  if (options.threads > kMaxCpuThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, "; it must be at most ", kMaxCpuThreads));
  }
  if (options.isa > kernels::DetectIsa()) {
    return absl::FailedPreconditionError(absl::StrCat("isa is ", kernels::IsaName(options.isa),
                                                      ", which this machine lacks; it has ",
                                                      kernels::IsaName(kernels::DetectIsa())));
  }
  const uint32_t cores = AvailableCores();
  const uint32_t threads = options.threads == 0 ? std::min(cores, kMaxCpuThreads) : options.threads;
  if (options.communicator == nullptr) options.communicator = std::make_unique<SoloCommunicator>();
  return std::make_unique<CpuBackend>(threads, cores, options.isa, std::move(options.communicator));
}

}  // namespace octavo
