// octavo-worker: one rank. Opens the model file, listens, registers with the scheduler again and
// again, and does as it is told.

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/flags.h"
#include "common/ready_file.h"
#include "common/signals.h"
#include "common/wire/health_service.h"
#include "common/wire/rpc_server.h"
#include "glog/logging.h"
#include "worker/device/machine.h"
#include "worker/rpc/lease.h"
#include "worker/rpc/registration.h"
#include "worker/rpc/worker_service.h"

ABSL_FLAG(std::string, model, "", "Model file (GGUF). Required; the same file the scheduler has.");
ABSL_FLAG(std::string, scheduler, "127.0.0.1:7000",
          "Where the scheduler listens: host:port or unix:/path.");
ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "Where to listen: host:port (port 0 picks a free one) or unix:/path.");
ABSL_FLAG(std::string, advertise, "",
          "Address the scheduler dials back; empty: where this worker listens.");
ABSL_FLAG(uint32_t, threads, 0, "Compute threads; 0: the cores this process may use.");
ABSL_FLAG(std::string, isa, "auto",
          "Instruction set of the kernels: auto, scalar or avx2. The bits are the same.");
ABSL_FLAG(std::string, ready_file, "", "Write a JSON file with pid and address here once serving.");
ABSL_FLAG(bool, exit_with_parent, false, "End when the process that started this one ends.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(5),
          "On SIGTERM, time for steps in flight to be answered.");

namespace octavo {
namespace {

constexpr char kAbout[] =
    "octavo-worker: owns a KV pool and runs a model's steps for octavo-scheduler.\n"
    "Example: octavo-worker --model SmolLM2-135M-Instruct.Q4_1.gguf --scheduler 127.0.0.1:7000\n";

std::string MakeInstanceId() {
  return absl::StrFormat("%x-%x", absl::ToUnixNanos(absl::Now()), getpid());
}

int Fail(const absl::Status& status) {
  std::cerr << "octavo-worker: " << status.message() << "\n";
  return kExitBadConfiguration;
}

v1::WorkerDescription Describe(const WorkerHost& host, const std::string& instance_id,
                               const std::string& address) {
  v1::WorkerDescription worker;
  worker.set_instance_id(instance_id);
  worker.set_address(address);
  worker.set_device("cpu");
  worker.set_memory_bytes(ReadMachineMemory().total_bytes);
  worker.set_min_block_size(1);
  worker.set_max_block_size(kMaxBlockSize);
  worker.add_kv_dtypes(KvTypeName(KvType::kF16));
  worker.add_kv_dtypes(KvTypeName(KvType::kBF16));
  worker.set_model_fingerprint(host.model_fingerprint());
  worker.set_process_id(static_cast<uint32_t>(getpid()));
  worker.set_version(OCTAVO_VERSION);
  return worker;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> command_line = ParseFlags(argc, argv);
  if (!command_line.ok()) return Fail(command_line.status());
  if (command_line->version) {
    std::cout << "octavo-worker " << OCTAVO_VERSION << "\n";
    return kExitOk;
  }
  if (command_line->help) {
    std::cout << FlagsHelp(kAbout, {"worker/"});
    return kExitOk;
  }
  if (!command_line->positional.empty()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument \"", command_line->positional[0], "\"; see --help for the flags")));
  }
  if (absl::GetFlag(FLAGS_model).empty()) {
    return Fail(absl::InvalidArgumentError("--model is required: the path of a GGUF file"));
  }
  if (absl::GetFlag(FLAGS_exit_with_parent)) prctl(PR_SET_PDEATHSIG, SIGTERM);

  const sigset_t signals = BlockTerminationSignals();

  const absl::StatusOr<kernels::Isa> isa = ParseIsa(absl::GetFlag(FLAGS_isa));
  if (!isa.ok()) return Fail(isa.status());
  const absl::StatusOr<std::unique_ptr<WorkerHost>> host =
      WorkerHost::Create({.model_path = absl::GetFlag(FLAGS_model),
                          .threads = absl::GetFlag(FLAGS_threads),
                          .isa = *isa});
  if (!host.ok()) return Fail(host.status());
  if (const auto limit = wire::RaiseDescriptorLimit(); !limit.ok()) LOG(WARNING) << limit.status();

  const RealClock clock;
  Lease lease(clock);
  const std::string instance_id = MakeInstanceId();
  wire::EnableIntrospection();
  wire::SilenceParser();
  wire::HealthService health({v1::WorkerService::service_full_name()});
  WorkerServiceImpl service(**host, instance_id, [&lease] { lease.Renew(); });
  const auto server = wire::RpcServer::Start({absl::GetFlag(FLAGS_listen)}, {&service, &health});
  if (!server.ok()) return Fail(server.status());
  const std::string address = (*server)->addresses()[0];
  LOG(INFO) << "listening on " << address << ", model " << absl::GetFlag(FLAGS_model);
  const std::string advertised =
      absl::GetFlag(FLAGS_advertise).empty() ? address : absl::GetFlag(FLAGS_advertise);
  {
    const Registration registration(
        absl::GetFlag(FLAGS_scheduler), Describe(**host, instance_id, advertised),
        [&](bool accepted) {
          if (accepted) {
            lease.Renew();
          } else if (lease.Expired(absl::Milliseconds(service.lease_ms()))) {
            service.EndStream(absl::UnavailableError("the scheduler was silent past its lease"));
          }
        });
    health.SetAllServing(true);
    if (const absl::Status status =
            WriteReadyFile(absl::GetFlag(FLAGS_ready_file), {{"listen", address}});
        !status.ok()) {
      return Fail(status);
    }
    int signal_number = 0;
    sigwait(&signals, &signal_number);
    LOG(INFO) << strsignal(signal_number) << ": leaving";
    health.SetAllServing(false);
  }
  // A second signal ends at once.
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  service.EndStream(absl::UnavailableError("the worker is leaving"));
  health.EndWatches();
  (*server)->Shutdown(clock.Now() + absl::GetFlag(FLAGS_drain_timeout));
  return kExitOk;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  return octavo::Main(argc, argv);
}
