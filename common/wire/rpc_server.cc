#include "common/wire/rpc_server.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/stubs/logging.h"
#include "grpcpp/ext/channelz_service_plugin.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"

namespace octavo::wire {
namespace {

constexpr char kUnixScheme[] = "unix:";

// "host:port" with the port replaced.
std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const std::vector<std::string>& addresses, const std::vector<grpc::Service*>& services) {
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // One listener a port and process: a second server on the same port is an error, not a silent
  // partner.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // A client that vanished without a word is noticed in 20 s; clients may ping every 5 s, calls or
  // not.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 250);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  std::vector<int> ports(addresses.size(), 0);
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!absl::StartsWith(addresses[i], kUnixScheme) && !absl::StrContains(addresses[i], ":")) {
      return absl::InvalidArgumentError(absl::StrCat("cannot listen on \"", addresses[i],
                                                     "\": expected host:port or unix:/path"));
    }
    builder.AddListeningPort(addresses[i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto server = std::unique_ptr<RpcServer>(new RpcServer);
  server->server_ = builder.BuildAndStart();
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (server->server_ == nullptr || ports[i] == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", addresses[i],
                       ": the address is in use, not local or not permitted"));
    }
    if (absl::StartsWith(addresses[i], kUnixScheme)) {
      chmod(addresses[i].c_str() + sizeof(kUnixScheme) - 1, 0600);
      server->addresses_.push_back(addresses[i]);
    } else {
      server->addresses_.push_back(WithPort(addresses[i], ports[i]));
    }
  }
  return server;
}

void RpcServer::Shutdown(absl::Time deadline) {
  server_->Shutdown(absl::ToChronoTime(deadline));
  server_->Wait();
}

grpc::ChannelArguments PeerChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 500);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // A channel of its own for each link, so that closing one closes its connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

void SilenceParser() { google::protobuf::SetLogHandler(nullptr); }

void EnableIntrospection() {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
}

absl::StatusOr<uint64_t> RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::InternalError(absl::StrCat("getrlimit: ", std::strerror(errno)));
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::InternalError(
        absl::StrCat("setrlimit to ", limit.rlim_max, ": ", std::strerror(errno)));
  }
  return limit.rlim_cur;
}

}  // namespace octavo::wire
