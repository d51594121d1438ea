// A server with the health service on loopback, looked at by a gRPC client and by the listener
// probe.

#include "common/wire/rpc_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "common/wire/health_service.h"
#include "common/wire/listener_probe.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace octavo::wire {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class RpcServerTest : public testing::Test {
 protected:
  RpcServerTest() {
    auto server = RpcServer::Start({"127.0.0.1:0", "unix:" + socket_path_}, {&health_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = Health::NewStub(grpc::CreateCustomChannel(
        server_->addresses()[0], grpc::InsecureChannelCredentials(), PeerChannelArguments()));
  }
  ~RpcServerTest() override {
    health_.EndWatches();
    server_->Shutdown(absl::Now() + absl::Seconds(5));
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse& response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, &response);
  }

  const std::string socket_path_ =
      testing::TempDir() + "/rpc_server_test." + std::to_string(getpid());
  HealthService health_{{"octavo.v1.TestService"}};
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Health::Stub> stub_;
};

TEST_F(RpcServerTest, SaysWhichPortItChose) {
  EXPECT_THAT(server_->addresses()[0], testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  EXPECT_EQ(server_->addresses()[1], "unix:" + socket_path_);
}

TEST_F(RpcServerTest, RefusesAnAddressInUseAndOneItCannotRead) {
  HealthService health({});
  const auto second = RpcServer::Start({server_->addresses()[0]}, {&health});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr(server_->addresses()[0]));
  EXPECT_EQ(RpcServer::Start({"nonsense"}, {&health}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RpcServerTest, HealthStartsLiveButNotReadyAndKnowsItsServices) {
  HealthCheckResponse response;
  ASSERT_TRUE(Check("liveness", response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  for (const char* service : {"", "readiness", "octavo.v1.TestService"}) {
    ASSERT_TRUE(Check(service, response).ok()) << service;
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING) << service;
  }
  EXPECT_EQ(Check("no.such.Service", response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, AWatchSeesEachChangeAndEndsWhenToldTo) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("readiness");
  auto reader = stub_->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  health_.SetAllServing(true);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  health_.SetServing("readiness", false);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  health_.EndWatches();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcServerTest, AWatchOfAnUnknownServiceSaysSoAndGoesOn) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  auto reader = stub_->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RpcServerTest, TheProbeHearsALivingListenerAndNotADeafOne) {
  ListenerProbe probe;
  EXPECT_TRUE(probe.Probe(server_->addresses()[0], absl::Seconds(20)).ok());
  EXPECT_TRUE(probe.Probe(server_->addresses()[1], absl::Seconds(20)).ok());
  // A socket that listens but is never accepted from: what a gRPC listener is after EMFILE.
  const int deaf = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(deaf, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(deaf, 8), 0);
  ASSERT_EQ(getsockname(deaf, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_EQ(probe.Probe(name, absl::Milliseconds(20)).code(), absl::StatusCode::kDeadlineExceeded);
  close(deaf);
  EXPECT_EQ(probe.Probe(name, absl::Seconds(20)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(RpcServerTest, TheProbeWorksWhenAllOtherDescriptorsAreTaken) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  ListenerProbe probe;
  std::vector<int> taken;
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY))
    taken.push_back(fd);
  EXPECT_TRUE(probe.Probe(server_->addresses()[1], absl::Seconds(20)).ok());
  ListenerProbe without_reserve;
  EXPECT_EQ(without_reserve.Probe(server_->addresses()[1], absl::Seconds(20)).code(),
            absl::StatusCode::kResourceExhausted);
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(RaiseDescriptorLimitTest, SetsTheSoftLimitToTheHardOne) {
  const auto limit = RaiseDescriptorLimit();
  ASSERT_TRUE(limit.ok());
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, now.rlim_max);
  EXPECT_EQ(*limit, now.rlim_max);
}

}  // namespace
}  // namespace octavo::wire
