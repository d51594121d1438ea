#pragma once

// Errors across a gRPC border: absl::Status inside the process, grpc::Status with google.rpc
// details on the wire. A reason and a retry delay (common/status_reason.h) become ErrorInfo of
// domain "octavo" and RetryInfo; other details travel in a status as payloads under the type URLs
// of their messages.
//
// Thread rule: pure functions.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace octavo::wire {

// InvalidArgument for the reason INVALID_FIELD, with a BadRequest that names `field` (a path in the
// request message, e.g. "sampling.top_p").
absl::Status InvalidField(absl::string_view field, absl::string_view message);

// Adds a BadRequest violation to `status`.
void AttachFieldViolation(absl::Status& status, absl::string_view field,
                          absl::string_view description);

// Code, message and every detail, as google.rpc.Status in grpc-status-details-bin.
grpc::Status ToGrpc(absl::Status status);

// The reverse. A detail that is neither ErrorInfo of our domain nor RetryInfo with a delay above
// zero is kept as it came.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace octavo::wire
