#include "common/wire/errors.h"

#include <gtest/gtest.h>

#include "common/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace octavo::wire {
namespace {

TEST(ErrorsTest, DetailsCrossTheBorderAndComeBack) {
  absl::Status status = InvalidField("sampling.top_p", "top_p is 2; it must be in (0, 1]");
  AttachRetryInfo(status, absl::Milliseconds(1500));
  AttachErrorInfo(status, "QUEUE_FULL", {{"queued", "64"}});
  const grpc::Status wire = ToGrpc(status);
  EXPECT_EQ(wire.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(wire.error_message(), "top_p is 2; it must be in (0, 1]");

  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(wire.error_details()));
  EXPECT_EQ(details.details_size(), 3);

  const absl::Status back = FromGrpc(wire);
  EXPECT_EQ(back, status);
  EXPECT_EQ(ErrorMetadata(back, "queued"), "64");
  EXPECT_EQ(RetryDelay(back), absl::Milliseconds(1500));
}

TEST(ErrorsTest, FieldViolationsAddUp) {
  absl::Status status = InvalidField("n", "n is 2");
  AttachFieldViolation(status, "beam_width", "beam_width is 3");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(ToGrpc(status).error_details()));
  google::rpc::BadRequest bad_request;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad_request));
  EXPECT_EQ(bad_request.field_violations_size(), 2);
  EXPECT_EQ(bad_request.field_violations(1).field(), "beam_width");
}

TEST(ErrorsTest, AReasonBecomesErrorInfo) {
  const absl::Status status =
      WithReason(absl::FailedPreconditionError("too long"), "CANNOT_FIT", {{"pool_blocks", 8}});
  EXPECT_TRUE(HasErrorInfo(status));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(ToGrpc(status).error_details()));
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "CANNOT_FIT");
  EXPECT_EQ(info.domain(), "octavo");
  EXPECT_EQ(info.metadata().at("pool_blocks"), "8");
}

TEST(ErrorsTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace octavo::wire
