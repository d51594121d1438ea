#include "common/wire/errors.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace octavo::wire {
namespace {

template <typename Message>
std::vector<Message> Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  std::vector<Message> found;
  for (const auto& any : details.details()) {
    if (Message message; any.UnpackTo(&message)) found.push_back(message);
  }
  return found;
}

TEST(ErrorsTest, DetailsCrossTheBorderAndComeBack) {
  absl::Status status = InvalidField("sampling.top_p", "top_p is 2; it must be in (0, 1]");
  status = WithRetryDelay(status, absl::Milliseconds(1500));
  status = WithReason(status, "QUEUE_FULL", {{"queued", 64}, {"limit", 64}});
  const grpc::Status wire = ToGrpc(status);
  EXPECT_EQ(wire.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(wire.error_message(), "top_p is 2; it must be in (0, 1]");

  const auto infos = Details<google::rpc::ErrorInfo>(wire);
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_EQ(infos[0].reason(), "QUEUE_FULL");
  EXPECT_EQ(infos[0].domain(), "octavo");
  EXPECT_EQ(infos[0].metadata().size(), 2u);
  EXPECT_EQ(infos[0].metadata().at("queued"), "64");
  const auto retries = Details<google::rpc::RetryInfo>(wire);
  ASSERT_EQ(retries.size(), 1u);
  EXPECT_EQ(retries[0].retry_delay().seconds(), 1);
  EXPECT_EQ(retries[0].retry_delay().nanos(), 500'000'000);
  EXPECT_EQ(Details<google::rpc::BadRequest>(wire).size(), 1u);
  google::rpc::Status all;
  ASSERT_TRUE(all.ParseFromString(wire.error_details()));
  EXPECT_EQ(all.details_size(), 3);

  EXPECT_EQ(FromGrpc(wire), status);
}

TEST(ErrorsTest, FieldViolationsAddUpUnderTheReasonOfTheFirst) {
  absl::Status status = InvalidField("n", "n is 2");
  AttachFieldViolation(status, "beam_width", "beam_width is 3");
  const auto requests = Details<google::rpc::BadRequest>(ToGrpc(status));
  ASSERT_EQ(requests.size(), 1u);
  ASSERT_EQ(requests[0].field_violations_size(), 2);
  EXPECT_EQ(requests[0].field_violations(1).field(), "beam_width");
  EXPECT_EQ(TakeReason(status), (StatusReason{"INVALID_FIELD", {{"field", "n"}}}));
}

TEST(ErrorsTest, AnothersDetailsAndNonsenseStayAsTheyCame) {
  google::rpc::ErrorInfo foreign;
  foreign.set_domain("googleapis.com");
  foreign.set_reason("QUOTA");
  google::rpc::RetryInfo nonsense;
  nonsense.mutable_retry_delay()->set_seconds(-1);
  google::rpc::Status details;
  details.add_details()->PackFrom(foreign);
  details.add_details()->PackFrom(nonsense);
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no", details.SerializeAsString()));
  EXPECT_FALSE(HasReason(status));
  EXPECT_EQ(RetryDelay(status), absl::ZeroDuration());
  for (const auto& any : details.details()) {
    EXPECT_EQ(status.GetPayload(any.type_url()), absl::Cord(any.value())) << any.type_url();
  }
}

TEST(ErrorsTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace octavo::wire
