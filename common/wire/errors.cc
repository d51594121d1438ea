#include "common/wire/errors.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace octavo::wire {
namespace {

constexpr char kTypeUrlPrefix[] = "type.googleapis.com/";
constexpr char kDomain[] = "octavo";

template <typename Message>
std::string TypeUrl() {
  return kTypeUrlPrefix + Message::descriptor()->full_name();
}

// The detail of this type in `status`, or an empty one.
template <typename Message>
Message GetDetail(const absl::Status& status) {
  Message message;
  if (const auto payload = status.GetPayload(TypeUrl<Message>())) {
    message.ParseFromString(std::string(*payload));
  }
  return message;
}

template <typename Message>
void SetDetail(absl::Status& status, const Message& message) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(message.SerializeAsString()));
}

google::rpc::ErrorInfo EncodeReason(const StatusReason& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason.reason);
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(reason.numbers.begin(), reason.numbers.end());
  return info;
}

google::rpc::RetryInfo EncodeDelay(absl::Duration delay) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &delay));
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(delay)));
  return info;
}

// Attaches the reason or the retry delay that `any` holds; false when it is another detail.
bool DecodeReason(const google::protobuf::Any& any, absl::Status& status) {
  google::rpc::ErrorInfo info;
  if (any.UnpackTo(&info) && info.domain() == kDomain && !info.reason().empty()) {
    status = WithReason(std::move(status),
                        {info.reason(), {info.metadata().begin(), info.metadata().end()}});
    return true;
  }
  google::rpc::RetryInfo retry;
  if (!any.UnpackTo(&retry)) return false;
  const absl::Duration delay =
      absl::Seconds(retry.retry_delay().seconds()) + absl::Nanoseconds(retry.retry_delay().nanos());
  if (delay <= absl::ZeroDuration()) return false;
  status = WithRetryDelay(std::move(status), delay);
  return true;
}

}  // namespace

absl::Status InvalidField(absl::string_view field, absl::string_view message) {
  absl::Status status =
      WithReason(absl::InvalidArgumentError(message), "INVALID_FIELD", {{"field", field}});
  AttachFieldViolation(status, field, message);
  return status;
}

void AttachFieldViolation(absl::Status& status, absl::string_view field,
                          absl::string_view description) {
  auto bad_request = GetDetail<google::rpc::BadRequest>(status);
  auto& violation = *bad_request.add_field_violations();
  violation.set_field(std::string(field));
  violation.set_description(std::string(description));
  SetDetail(status, bad_request);
}

grpc::Status ToGrpc(absl::Status status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  if (const absl::Duration delay = RetryDelay(status); delay > absl::ZeroDuration()) {
    details.add_details()->PackFrom(EncodeDelay(delay));
  }
  if (const auto reason = TakeReason(status)) {
    details.add_details()->PackFrom(EncodeReason(*reason));
  }
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (absl::StartsWith(url, kReasonPayloads)) return;
    auto& any = *details.add_details();
    any.set_type_url(std::string(url));
    any.set_value(std::string(payload));
  });
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.details().empty() ? std::string() : details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) {
      if (!DecodeReason(any, result)) result.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return result;
}

}  // namespace octavo::wire
