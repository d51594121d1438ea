#include "scheduler/http/metrics_server.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "httplib.h"

namespace octavo {
namespace {

constexpr size_t kThreads = 2;
constexpr size_t kMaxRequestBytes = 64 << 10;

}  // namespace

struct MetricsServer::Impl {
  httplib::Server server;
  std::string address;
  std::atomic<bool> ended = false;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::function<std::string()> metrics, std::function<bool()> ready) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65'535) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on \"", address, "\": expected host:port"));
  }
  const std::string host = address.substr(0, colon);
  auto impl = std::make_unique<Impl>();
  httplib::Server& server = impl->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kMaxRequestBytes);
  server.set_keep_alive_timeout(5);
  // httplib shares ports by default; here a port in use is an error.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.Get("/metrics",
             [metrics = std::move(metrics)](const httplib::Request&, httplib::Response& response) {
               response.set_content(metrics(), "text/plain; version=0.0.4; charset=utf-8");
             });
  server.Get("/healthz",
             [ready = std::move(ready)](const httplib::Request&, httplib::Response& response) {
               const bool is_ready = ready();
               response.status = is_ready ? 200 : 503;
               response.set_content(is_ready ? "ok\n" : "not ready\n", "text/plain");
             });
  if (port == 0) {
    port = server.bind_to_any_port(host.c_str());
  } else if (!server.bind_to_port(host.c_str(), port)) {
    port = -1;
  }
  if (port < 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address, ": the address is in use, not local or not permitted"));
  }
  impl->address = absl::StrCat(host, ":", port);
  impl->thread = std::thread([impl = impl.get()] {
    impl->server.listen_after_bind();
    impl->ended = true;
  });
  // stop() does nothing before the listening loop runs.
  while (!server.is_running() && !impl->ended) std::this_thread::yield();
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() {
  impl_->server.stop();
  impl_->thread.join();
}

const std::string& MetricsServer::address() const { return impl_->address; }

}  // namespace octavo
