#include "common/wire/errors.h"

#include "absl/strings/cord.h"
#include "common/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace octavo::wire {
namespace {

constexpr char kTypeUrlPrefix[] = "type.googleapis.com/";

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

}  // namespace

absl::Status InvalidField(absl::string_view field, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
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

void AttachRetryInfo(absl::Status& status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &delay));
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(delay)));
  SetDetail(status, info);
}

void AttachErrorInfo(absl::Status& status, absl::string_view reason,
                     const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain("octavo");
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  SetDetail(status, info);
}

grpc::Status ToGrpc(absl::Status status) {
  if (status.ok()) return grpc::Status::OK;
  if (const auto reason = TakeReason(status)) {
    AttachErrorInfo(status, reason->reason, reason->numbers);
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
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
      result.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return result;
}

std::string ErrorMetadata(const absl::Status& status, const std::string& key) {
  const auto info = GetDetail<google::rpc::ErrorInfo>(status);
  const auto found = info.metadata().find(key);
  return found == info.metadata().end() ? std::string() : found->second;
}

bool HasErrorInfo(const absl::Status& status) {
  return HasReason(status) || status.GetPayload(TypeUrl<google::rpc::ErrorInfo>()).has_value();
}

absl::Duration RetryDelay(const absl::Status& status) {
  const auto info = GetDetail<google::rpc::RetryInfo>(status);
  return absl::Seconds(info.retry_delay().seconds()) +
         absl::Nanoseconds(info.retry_delay().nanos());
}

}  // namespace octavo::wire
