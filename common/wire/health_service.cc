#include "common/wire/health_service.h"

#include <utility>

#include "glog/logging.h"

namespace octavo::wire {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch call; deletes itself when gRPC is done with it. Its state is guarded by the service's
// mutex.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, std::string name) : service_(service), name_(std::move(name)) {}

  // Sends the status if it is news and nothing is in flight. REQUIRES: service mutex held.
  void Notify(HealthCheckResponse::ServingStatus status) {
    if (writing_ || finished_ || (sent_any_ && message_.status() == status)) return;
    message_.set_status(status);
    sent_any_ = true;
    writing_ = true;
    StartWrite(&message_);
  }

  // Ends the call, after the write in flight if there is one. REQUIRES: service mutex held.
  void End(const grpc::Status& status) {
    if (finished_) return;
    if (writing_) {
      ending_ = true;
      end_status_ = status;
      return;
    }
    finished_ = true;
    Finish(status);
  }

  const std::string& name() const { return name_; }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&service_->mutex_);
    writing_ = false;
    if (!ok) {
      End(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher is gone"));
    } else if (ending_) {
      End(end_status_);
    } else {
      Notify(service_->StatusOf(name_));
    }
  }

  void OnCancel() override {
    absl::MutexLock lock(&service_->mutex_);
    End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the watcher"));
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&service_->mutex_);
      service_->watchers_.erase(this);
    }
    delete this;
  }

 private:
  HealthService* const service_;
  const std::string name_;
  HealthCheckResponse message_;
  grpc::Status end_status_;
  bool sent_any_ = false;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
};

HealthService::HealthService(const std::vector<std::string>& services) {
  serving_ = {{"", false}, {kLiveness, true}, {kReadiness, false}};
  for (const std::string& service : services) serving_.emplace(service, false);
}

HealthService::~HealthService() {
  absl::MutexLock lock(&mutex_);
  CHECK(watchers_.empty()) << "the health service must outlive its server";
}

void HealthService::SetServing(const std::string& service, bool serving) {
  absl::MutexLock lock(&mutex_);
  const auto entry = serving_.find(service);
  CHECK(entry != serving_.end()) << "unknown service " << service;
  entry->second = serving;
  NotifyWatchers();
}

void HealthService::SetAllServing(bool serving) {
  absl::MutexLock lock(&mutex_);
  for (auto& [name, value] : serving_) {
    if (name != kLiveness) value = serving;
  }
  NotifyWatchers();
}

void HealthService::EndWatches() {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  for (Watcher* watcher : watchers_) {
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server shuts down"));
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mutex_);
  const auto entry = serving_.find(request->service());
  if (entry == serving_.end()) {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service " + request->service()));
  } else {
    response->set_status(StatusOf(request->service()));
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  auto* watcher = new Watcher(this, request->service());
  absl::MutexLock lock(&mutex_);
  if (ended_) {
    watcher->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server shuts down"));
  } else if (watchers_.size() >= kMaxHealthWatches) {
    watcher->End(
        grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     "more than " + std::to_string(kMaxHealthWatches) + " health watches"));
  } else {
    watcher->Notify(StatusOf(request->service()));
  }
  watchers_.insert(watcher);
  return watcher;
}

HealthCheckResponse::ServingStatus HealthService::StatusOf(const std::string& service) const {
  const auto entry = serving_.find(service);
  if (entry == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return entry->second ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::NotifyWatchers() {
  for (Watcher* watcher : watchers_) watcher->Notify(StatusOf(watcher->name()));
}

}  // namespace octavo::wire
