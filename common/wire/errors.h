#pragma once

// Errors across a gRPC border: absl::Status inside the process, grpc::Status with google.rpc
// details on the wire. The details travel in a status as payloads under the type URLs of their
// messages, so that a room that makes an error can attach one without seeing gRPC.
//
// Thread rule: pure functions.

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace octavo::wire {

// InvalidArgument with a BadRequest that names `field` (a path in the request message, e.g.
// "sampling.top_p").
absl::Status InvalidField(absl::string_view field, absl::string_view message);

// Adds a BadRequest violation to `status`.
void AttachFieldViolation(absl::Status& status, absl::string_view field,
                          absl::string_view description);

// Adds RetryInfo: come back after `delay`.
void AttachRetryInfo(absl::Status& status, absl::Duration delay);

// Adds ErrorInfo with domain "octavo"; `reason` is UPPER_SNAKE; numbers go to `metadata`.
void AttachErrorInfo(absl::Status& status, absl::string_view reason,
                     const std::map<std::string, std::string>& metadata);

// Code, message, a reason (common/status_reason.h) as ErrorInfo, and every attached detail, as
// google.rpc.Status in grpc-status-details-bin.
grpc::Status ToGrpc(absl::Status status);

// The reverse; details that are not of google.rpc's known types are kept as payloads all the same.
absl::Status FromGrpc(const grpc::Status& status);

// The ErrorInfo of `status`: value of `key` in its metadata, or empty.
std::string ErrorMetadata(const absl::Status& status, const std::string& key);

// Whether an ErrorInfo is attached, or a reason that becomes one.
bool HasErrorInfo(const absl::Status& status);

// The delay of an attached RetryInfo, or zero.
absl::Duration RetryDelay(const absl::Status& status);

}  // namespace octavo::wire
