#pragma once

// The HTTP port: /metrics for Prometheus and /healthz for probes that speak no gRPC. In: a function
// for each. Out: a listening thread.
//
// Thread-compatible: owned by main; the functions run on its threads.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace octavo {

class MetricsServer {
 public:
  // Listens on `address`, "host:port"; port 0 picks a free one. `ready` answers /healthz: 200 or
  // 503. InvalidArgument for an address that cannot be read, Unavailable for one that cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              std::function<std::string()> metrics,
                                                              std::function<bool()> ready);
  ~MetricsServer();

  // With the real port.
  const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace octavo
