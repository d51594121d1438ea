#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/flags.h"
#include "common/ready_file.h"
#include "common/wire/rpc_server.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "nlohmann/json.hpp"
#include "octavo/v1/fleet_service.grpc.pb.h"
#include "tools/octavo/commands.h"
#include "tools/octavo/supervisor.h"

ABSL_FLAG(
    std::string, model, "",
    "Model file (GGUF); empty: SmolLM2-135M-Instruct as tools/dev unpacks it into the cache.");
ABSL_FLAG(std::string, listen, "127.0.0.1:7000",
          "Where clients reach the server: host:port or unix:/path.");
ABSL_FLAG(std::string, admin_listen, "",
          "Where operators call (AdminService, FleetService); empty: at --listen.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9400",
          "Where Prometheus finds /metrics: host:port.");
ABSL_FLAG(uint32_t, threads, 0,
          "Compute threads of the worker; 0: the cores this process may use.");
ABSL_FLAG(std::string, isa, "auto",
          "Instruction set of the worker's kernels: auto, scalar or avx2.");
ABSL_FLAG(std::string, ready_file, "",
          "Write a JSON file with pid and addresses here once requests are served.");

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultModel[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

// Flags that Serve hands to the scheduler itself. Given again after the --, theirs would win: then
// the worker has another model, or registers where nobody listens, or nobody learns that the
// scheduler is ready.
constexpr absl::string_view kOwnFlags[] = {"listen", "admin_listen", "metrics_listen", "model",
                                           "ready_file"};

fs::path CacheFolder() {
  if (const char* cache = getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "octavo";
  }
  const char* home = getenv("HOME");
  return fs::path(home == nullptr ? "." : home) / ".cache" / "octavo";
}

// Sockets between our own processes: a folder only this user can enter, removed at the end.
class RuntimeFolder {
 public:
  RuntimeFolder() {
    std::string pattern = (fs::temp_directory_path() / "octavo-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~RuntimeFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The programs lie beside this one.
std::string Sibling(const char* name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

// The scheduler's ready file without `hidden`, the address that only our own processes use.
std::map<std::string, std::string> ReadAddresses(const fs::path& ready_file,
                                                 const std::string& hidden) {
  std::map<std::string, std::string> addresses;
  std::ifstream file(ready_file);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return addresses;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) continue;
    const std::string text = value.get<std::string>();
    addresses[key] = text.substr(0, text.find("," + hidden));
  }
  return addresses;
}

// The first of kOwnFlags among the scheduler's `arguments`; empty if there is none.
absl::string_view FindOwnFlag(const std::vector<std::string>& arguments) {
  for (absl::string_view argument : arguments) {
    if (!absl::ConsumePrefix(&argument, "-")) continue;
    absl::ConsumePrefix(&argument, "-");
    const absl::string_view name = argument.substr(0, argument.find('='));
    for (const absl::string_view own : kOwnFlags) {
      if (name == own) return own;
    }
  }
  return {};
}

bool IsServing(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("readiness");
  grpc::health::v1::HealthCheckResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  return grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response).ok() &&
         response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

// Processes of workers that the scheduler has lost and does not hear from: a worker that merely
// failed registers again at its next heartbeat.
std::vector<pid_t> HungWorkers(const std::shared_ptr<grpc::Channel>& channel) {
  constexpr uint64_t kSilentMs = 3000;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::ListWorkersResponse response;
  std::vector<pid_t> hung;
  if (!v1::FleetService::NewStub(channel)->ListWorkers(&context, {}, &response).ok()) return hung;
  for (const v1::FleetWorker& worker : response.workers()) {
    if (worker.state() == v1::WORKER_STATE_LOST && worker.silent_ms() >= kSilentMs)
      hung.push_back(static_cast<pid_t>(worker.worker().process_id()));
  }
  return hung;
}

}  // namespace

int Serve(const std::vector<std::string>& arguments) {
  if (const absl::string_view flag = FindOwnFlag(arguments); !flag.empty()) {
    std::cerr << "octavo: --" << flag << " is a flag of `octavo serve` itself, which needs it for "
              << "more than the scheduler: give it before the --, as `octavo serve --" << flag
              << " ...`\n";
    return kExitBadConfiguration;
  }
  const std::string model = absl::GetFlag(FLAGS_model).empty()
                                ? (CacheFolder() / "models" / kDefaultModel).string()
                                : absl::GetFlag(FLAGS_model);
  if (access(model.c_str(), R_OK) != 0) {
    std::cerr
        << "octavo: cannot read the model file " << model
        << (absl::GetFlag(FLAGS_model).empty()
                ? "; `tools/dev model` fetches the default model, or name a GGUF file with --model"
                : "; --model takes the path of a GGUF file")
        << "\n";
    return kExitBadConfiguration;
  }
  const RuntimeFolder runtime;
  if (runtime.path().empty()) {
    std::cerr << "octavo: cannot make a folder for sockets under "
              << fs::temp_directory_path().string() << "\n";
    return 1;
  }
  const std::string fleet = absl::StrCat("unix:", (runtime.path() / "fleet.sock").string());
  const fs::path scheduler_ready = runtime.path() / "scheduler.json";
  // The worker registers where operators call.
  const std::string admin = absl::GetFlag(FLAGS_admin_listen);
  const std::string fleet_flag = admin.empty() ? "listen" : "admin_listen";
  const auto with_fleet = [&](const std::string& flag, const std::string& address) {
    return flag == fleet_flag ? absl::StrCat(address, ",", fleet) : address;
  };
  Child scheduler{.name = "scheduler",
                  .arguments = {Sibling("octavo-scheduler"), "--model", model, "--listen",
                                with_fleet("listen", absl::GetFlag(FLAGS_listen)),
                                "--metrics_listen", absl::GetFlag(FLAGS_metrics_listen),
                                "--exit_with_parent", "--ready_file", scheduler_ready.string()}};
  if (!admin.empty()) {
    scheduler.arguments.insert(scheduler.arguments.end(),
                               {"--admin_listen", with_fleet("admin_listen", admin)});
  }
  scheduler.arguments.insert(scheduler.arguments.end(), arguments.begin(), arguments.end());
  const Child worker{
      .name = "worker",
      .arguments = {Sibling("octavo-worker"), "--model", model, "--scheduler", fleet, "--listen",
                    absl::StrCat("unix:", (runtime.path() / "worker0.sock").string()), "--threads",
                    absl::StrCat(absl::GetFlag(FLAGS_threads)), "--isa", absl::GetFlag(FLAGS_isa),
                    "--exit_with_parent"}};

  Supervisor::BlockSignals();
  Supervisor supervisor({scheduler, worker});
  std::shared_ptr<grpc::Channel> channel;
  bool ready = false;
  absl::Time next_look;
  return supervisor.Run(kExitBadConfiguration, [&] {
    if (ready && absl::Now() >= next_look) {
      next_look = absl::Now() + absl::Seconds(1);
      for (const pid_t pid : HungWorkers(channel)) supervisor.KillHung("worker", pid);
    }
    if (ready || !fs::exists(scheduler_ready)) return;
    if (channel == nullptr) {
      channel = grpc::CreateCustomChannel(fleet, grpc::InsecureChannelCredentials(),
                                          wire::PeerChannelArguments());
    }
    if (!IsServing(channel)) return;
    ready = true;
    std::map<std::string, std::string> addresses = ReadAddresses(scheduler_ready, fleet);
    // A port that was free is ours to keep: after a restart clients find the server where it was.
    for (const auto& [name, value] : addresses) {
      if (absl::EndsWith(name, "listen")) {
        supervisor.SetArgument("scheduler", "--" + name, with_fleet(name, value));
      }
      std::cerr << "octavo: " << name << ": " << value << "\n";
    }
    std::cerr << "octavo: ready. Try `octavo generate --server " << addresses["listen"]
              << " \"Hello\"`; Ctrl-C stops.\n";
    if (const absl::Status status = WriteReadyFile(absl::GetFlag(FLAGS_ready_file), addresses);
        !status.ok()) {
      std::cerr << "octavo: " << status.message() << "\n";
    }
  });
}

}  // namespace octavo::cli
