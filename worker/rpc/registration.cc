#include "worker/rpc/registration.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/wire/rpc_server.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace octavo {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(5);
constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
constexpr absl::Duration kLastRetry = absl::Seconds(2);

}  // namespace

Registration::Registration(std::string scheduler, v1::WorkerDescription worker,
                           std::function<void(bool)> on_answer)
    : scheduler_(std::move(scheduler)),
      worker_(std::move(worker)),
      on_answer_(std::move(on_answer)),
      thread_([this] { Run(); }) {}

Registration::~Registration() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

bool Registration::Wait(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopping_), time);
}

void Registration::Run() {
  const auto stub = v1::FleetService::NewStub(grpc::CreateCustomChannel(
      scheduler_, grpc::InsecureChannelCredentials(), wire::PeerChannelArguments()));
  v1::RegisterWorkerRequest request;
  *request.mutable_worker() = worker_;
  absl::Duration retry = kFirstRetry;
  std::string last_news;  // each change is logged once
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    v1::RegisterWorkerResponse response;
    const grpc::Status status = stub->RegisterWorker(&context, request, &response);
    std::string news = status.ok()
                           ? "registered with " + scheduler_
                           : "cannot register with " + scheduler_ + " (" + status.error_message() +
                                 "); trying again until it answers";
    if (news != last_news) LOG(INFO) << news;
    last_news = std::move(news);
    on_answer_(status.ok());
    retry = status.ok() ? kFirstRetry : std::min(retry * 2, kLastRetry);
    if (!Wait(status.ok() ? absl::Milliseconds(std::max(response.heartbeat_ms(), 10u)) : retry)) {
      return;
    }
  }
}

}  // namespace octavo
