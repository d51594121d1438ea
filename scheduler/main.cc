// octavo-scheduler: serves clients, owns the page tables and tells the workers what to compute.
// Links no CUDA and no kernels.
//
// Exit codes: 0 drained and done; 2 bad configuration (flags, model file, an address that cannot be
// listened on); 3 out of descriptors, a listener accepts no more (restart it); 4 ended by a second
// signal before the drain was over.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/flags.h"
#include "common/ready_file.h"
#include "common/signals.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "common/wire/health_service.h"
#include "common/wire/listener_probe.h"
#include "common/wire/rpc_server.h"
#include "glog/logging.h"
#include "scheduler/flags.h"
#include "scheduler/http/metrics.h"
#include "scheduler/http/metrics_server.h"
#include "scheduler/rpc/admin_service.h"
#include "scheduler/rpc/fleet_service.h"
#include "scheduler/rpc/generation_service.h"
#include "scheduler/rpc/worker_client.h"
#include "scheduler/runtime/served_model.h"

namespace octavo {
namespace {

constexpr int kExitDescriptors = 3;
constexpr int kExitSecondSignal = 4;
constexpr absl::Duration kProbeTimeout = absl::Seconds(3);
constexpr int kFailedProbesToDie = 2;
// After the drain: time for the last messages to leave, then for calls to be torn down.
constexpr absl::Duration kAbortTimeout = absl::Seconds(5);
constexpr absl::Duration kCloseTimeout = absl::Seconds(2);

constexpr char kAbout[] =
    "octavo-scheduler serves a language model from a paged KV cache. It computes nothing itself: "
    "start octavo-worker with the same "
    "--model and this scheduler's address.";

// Notifies at the first signal and ends the process at the second.
void WatchSignals(const sigset_t& signals, absl::Notification* first) {
  std::thread([signals, first] {
    int number = 0;
    sigwait(&signals, &number);
    LOG(INFO) << "signal " << number << ": draining; a second one ends at once";
    first->Notify();
    sigwait(&signals, &number);
    LOG(WARNING) << "second signal: ending at once";
    _exit(kExitSecondSignal);
  }).detach();
}

// Waits until `stop`, probing the listeners meanwhile. OK after `stop`; the reason when a listener
// is dead.
absl::Status ProbeUntil(const absl::Notification& stop, const std::vector<std::string>& addresses,
                        absl::Duration interval) {
  wire::ListenerProbe probe;
  int failures = 0;
  while (!stop.WaitForNotificationWithTimeout(interval)) {
    absl::Status worst;
    for (const std::string& address : addresses) {
      const absl::Status heard = probe.Probe(address, kProbeTimeout);
      if (!heard.ok()) worst = heard;
    }
    failures = worst.ok() ? 0 : failures + 1;
    if (!worst.ok())
      LOG(WARNING) << "a new connection to this process fails (" << failures << "): " << worst;
    if (failures >= kFailedProbesToDie) return worst;
  }
  return absl::OkStatus();
}

// Refuses new requests and waits until the accepted ones have ended, ending them after `timeout`.
void Drain(Loop& loop, absl::Duration timeout) {
  auto idle = std::make_shared<absl::Notification>();
  loop.BeginDrain([idle] { idle->Notify(); });
  if (idle->WaitForNotificationWithTimeout(timeout)) return;
  LOG(WARNING) << "requests still run after --drain_timeout; ending them";
  const absl::Status asked = loop.Call([&loop] {
    loop.EndAll(WithReason(absl::UnavailableError("the scheduler shuts down"), "SHUTTING_DOWN"));
  });
  if (!asked.ok()) LOG(ERROR) << "cannot end the remaining requests: " << asked;
  idle->WaitForNotificationWithTimeout(kAbortTimeout);
}

// What serves: made in order, undone in reverse.
class Scheduler {
 public:
  static absl::StatusOr<std::unique_ptr<Scheduler>> Start(SchedulerConfig config) {
    OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<ServedModel> model,
                            LoadServedModel(config.model_path, config.model_name));
    if (config.context_length) {
      if (*config.context_length > model->config.context_length) {
        return absl::InvalidArgumentError(
            "--context_length=" + std::to_string(*config.context_length) +
            ": it must be at most the model's, " + std::to_string(model->config.context_length));
      }
      model->config.context_length = *config.context_length;
      config.loop.fleet.context_length_asked = true;
    }
    config.loop.engine.context_length = model->config.context_length;
    config.loop.engine.vocab_size = model->config.vocab_size;
    config.loop.fleet.context_length = model->config.context_length;
    config.loop.fleet.model_fingerprint = model->fingerprint;
    config.loop.fleet.layout =
        model->config.MakeKvLayout(config.loop.fleet.layout.block_size, KvType::kF16);
    OCTAVO_RETURN_IF_ERROR(config.loop.engine.Validate());
    if (!model->chat_template_problem.empty()) {
      LOG(WARNING) << "chat prompts are refused, the model's template cannot be used: "
                   << model->chat_template_problem;
    }
    std::unique_ptr<Scheduler> scheduler(new Scheduler(std::move(config), std::move(model)));
    OCTAVO_RETURN_IF_ERROR(scheduler->Listen());
    return scheduler;
  }

  ~Scheduler() {
    health_.EndWatches();
    EndKvWatches();
    for (const auto& server : servers_) server->Shutdown(absl::Now() + kCloseTimeout);
    loop_.Stop();
    loop_thread_.join();
  }

  // Serves until a signal comes or a listener dies, then drains; returns the exit code.
  int Serve(const absl::Notification& signalled) {
    const absl::Status probed = ProbeUntil(signalled, addresses_, config_.probe_interval);
    if (!probed.ok()) {
      LOG(ERROR) << "out of descriptors? A listener accepts no more: " << probed
                 << ". Draining, then exit " << kExitDescriptors
                 << " so that a supervisor starts this process anew; raise its limit of open files "
                    "(LimitNOFILE, ulimit -Hn)";
      health_.SetServing(wire::kLiveness, false);
    }
    stopping_ = true;
    health_.SetAllServing(false);
    Drain(loop_, config_.drain_timeout);
    return probed.ok() ? kExitOk : kExitDescriptors;
  }

 private:
  Scheduler(SchedulerConfig config, std::unique_ptr<ServedModel> model)
      : config_(std::move(config)),
        model_(std::move(model)),
        health_({v1::GenerationService::service_full_name(), v1::AdminService::service_full_name(),
                 v1::FleetService::service_full_name()}),
        metrics_(model_->name, [this](bool ready) { SetReady(ready); }),
        loop_(config_.loop, model_->tokenizer.get(), &clock_, &dialer_, &metrics_),
        generation_({.limits = config_.limits, .log_prompts = config_.log_prompts}, model_.get(),
                    &loop_),
        admin_({.limits = config_.limits_by_flag,
                .show_tokens = config_.log_prompts,
                .kv_event_tokens = config_.kv_event_tokens,
                .started = clock_.Now()},
               model_.get(), &loop_, &clock_),
        fleet_(&loop_) {
    health_.SetServing(v1::AdminService::service_full_name(), true);
    health_.SetServing(v1::FleetService::service_full_name(), true);
    loop_thread_ = std::thread([this] { loop_.Run(); });
  }

  void EndKvWatches() {
    const absl::Status asked = loop_.Call([this] {
      loop_.kv_publisher().EndAll(
          WithReason(absl::UnavailableError("the scheduler shuts down"), "SHUTTING_DOWN"));
    });
    if (!asked.ok()) LOG(WARNING) << "cannot end who watches KV events: " << asked;
  }

  absl::Status Listen() {
    std::vector<grpc::Service*> client_services = {&generation_, &health_};
    std::vector<grpc::Service*> operator_services = {&admin_, &fleet_, &health_};
    std::map<std::string, std::string> ready = {{"model", model_->name}};
    if (config_.admin_listen.empty()) {
      client_services.insert(client_services.end(), {&admin_, &fleet_});
    } else {
      OCTAVO_RETURN_IF_ERROR(Serve("admin_listen", config_.admin_listen, operator_services, ready));
    }
    OCTAVO_RETURN_IF_ERROR(Serve("listen", config_.listen, client_services, ready));
    if (!config_.metrics_listen.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(metrics_server_,
                              MetricsServer::Start(
                                  config_.metrics_listen, [this] { return metrics_.Render(); },
                                  [this] { return ready_.load(); }));
      LOG(INFO) << "metrics on http://" << metrics_server_->address() << "/metrics";
      ready["metrics_listen"] = metrics_server_->address();
    }
    return WriteReadyFile(config_.ready_file, ready);
  }

  // Listens on the comma-separated `addresses`.
  absl::Status Serve(const std::string& flag, const std::string& addresses,
                     const std::vector<grpc::Service*>& services,
                     std::map<std::string, std::string>& ready) {
    OCTAVO_ASSIGN_OR_RETURN(std::unique_ptr<wire::RpcServer> server,
                            wire::RpcServer::Start(absl::StrSplit(addresses, ','), services));
    ready[flag] = absl::StrJoin(server->addresses(), ",");
    LOG(INFO) << "listening on " << ready[flag] << (flag == "listen" ? "" : " (" + flag + ")");
    addresses_.insert(addresses_.end(), server->addresses().begin(), server->addresses().end());
    servers_.push_back(std::move(server));
    return absl::OkStatus();
  }

  void SetReady(bool ready) {
    if (stopping_) ready = false;
    LOG(INFO) << (ready ? "ready: requests are served" : "not ready");
    ready_ = ready;
    for (const std::string& service : {std::string(), std::string(wire::kReadiness),
                                       std::string(v1::GenerationService::service_full_name())}) {
      health_.SetServing(service, ready);
    }
  }

  const SchedulerConfig config_;
  const std::unique_ptr<ServedModel> model_;
  const RealClock clock_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> stopping_ = false;
  wire::HealthService health_;
  Metrics metrics_;
  GrpcWorkerDialer dialer_;
  Loop loop_;
  std::thread loop_thread_;
  GenerationService generation_;
  AdminService admin_;
  FleetService fleet_;
  std::vector<std::unique_ptr<wire::RpcServer>> servers_;
  std::vector<std::string> addresses_;
  std::unique_ptr<MetricsServer> metrics_server_;
};

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseFlags(argc, argv);
  if (line.ok() && line->help) {
    std::cout << FlagsHelp(kAbout, {"scheduler/"});
    return kExitOk;
  }
  if (line.ok() && line->version) {
    std::cout << "octavo-scheduler " << OCTAVO_VERSION << "\n";
    return kExitOk;
  }
  absl::Status status = line.status();
  if (line.ok() && !line->positional.empty()) {
    status = absl::InvalidArgumentError("unexpected argument \"" + line->positional[0] +
                                        "\"; all settings are flags");
  }
  absl::StatusOr<SchedulerConfig> config = status.ok() ? ConfigFromFlags() : status;
  if (!config.ok()) {
    std::cerr << "octavo-scheduler: " << config.status().message() << "\n";
    return kExitBadConfiguration;
  }
  if (config->exit_with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  const sigset_t signals = BlockTerminationSignals();
  absl::Notification signalled;
  WatchSignals(signals, &signalled);
  const absl::StatusOr<uint64_t> descriptors = wire::RaiseDescriptorLimit();
  if (!descriptors.ok())
    LOG(WARNING) << "cannot raise the limit of open files: " << descriptors.status();
  wire::EnableIntrospection();
  wire::SilenceParser();
  absl::StatusOr<std::unique_ptr<Scheduler>> scheduler = Scheduler::Start(*std::move(config));
  if (!scheduler.ok()) {
    LOG(ERROR) << "cannot start: " << scheduler.status().message();
    return kExitBadConfiguration;
  }
  const int exit_code = (*scheduler)->Serve(signalled);
  scheduler->reset();
  LOG(INFO) << "done";
  return exit_code;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  return octavo::Main(argc, argv);
}
