#pragma once

// A gRPC server with the settings every Octavo process uses (reflection, channelz, message caps,
// keepalive, no shared ports), and the descriptor limit it needs. In: addresses and services. Out:
// a serving server that says where it listens.
//
// Thread-compatible: owned by main.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace octavo::wire {

// Messages above this are RESOURCE_EXHAUSTED: long prompts fit, memory stays bounded.
constexpr int kMaxMessageBytes = 16 << 20;
// Streams of one connection; further calls wait in the client.
constexpr int kMaxStreamsPerConnection = 4096;

class RpcServer {
 public:
  // Serves `services` (borrowed, must outlive this) on `addresses`: "host:port", port 0 picks a
  // free one, or "unix:/path", which only the same user can reach. Unavailable naming the address
  // that cannot be listened on.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const std::vector<std::string>& addresses, const std::vector<grpc::Service*>& services);

  // Where it listens, in the order asked for, with real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Refuses new calls, waits for running ones until `deadline`, then cancels them. Returns when all
  // are done.
  void Shutdown(absl::Time deadline);

 private:
  RpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
};

// Channel arguments for talking to another Octavo process: keepalive that notices a hung peer,
// short reconnect back-off, message caps.
grpc::ChannelArguments PeerChannelArguments();

// Reflection and channelz for every server of this process. Call once, before the first Start.
void EnableIntrospection();

// protobuf logs a line for every string of a client that is not UTF-8; this ends that, as the
// client is told and the log is not its to fill.
void SilenceParser();

// Raises the soft limit of open descriptors to the hard one and returns it. Needed before anything
// listens: in this gRPC one failed accept (EMFILE) kills a listener for good (CVE-2023-4785).
absl::StatusOr<uint64_t> RaiseDescriptorLimit();

}  // namespace octavo::wire
