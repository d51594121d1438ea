#include "common/status_reason.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(StatusReasonTest, TheReasonAndItsNumbersComeOutOnce) {
  absl::Status status = WithReason(absl::FailedPreconditionError("too long"), "CANNOT_FIT",
                                   {{"needed_blocks", 40}, {"pool_blocks", 18446744073709551615u}});
  EXPECT_EQ(status.message(), "too long");
  EXPECT_TRUE(HasReason(status));
  EXPECT_EQ(TakeReason(status),
            (StatusReason{"CANNOT_FIT",
                          {{"needed_blocks", "40"}, {"pool_blocks", "18446744073709551615"}}}));
  EXPECT_EQ(status, absl::FailedPreconditionError("too long"));
  EXPECT_FALSE(HasReason(status));
  EXPECT_EQ(TakeReason(status), std::nullopt);
}

TEST(StatusReasonTest, AReasonNeedsNoNumbersAndAnyTextSurvives) {
  for (const StatusReason& reason :
       {StatusReason{"DRAINING", {}},
        StatusReason{"ODD", {{"a=b", "1\n2"}, {"", ""}, {"c/d", std::string("\0x", 2)}}}}) {
    absl::Status status = WithReason(absl::UnavailableError("gone"), reason);
    EXPECT_EQ(TakeReason(status), reason);
    EXPECT_EQ(status, absl::UnavailableError("gone"));
  }
}

TEST(StatusReasonTest, ALaterReasonReplacesTheFirstNumbersIncluded) {
  absl::Status status = WithReason(absl::InternalError("x"), "FIRST", {{"a", 1}});
  status = WithReason(status, "SECOND", {{"b", 2}});
  EXPECT_EQ(TakeReason(status), (StatusReason{"SECOND", {{"b", "2"}}}));
}

TEST(StatusReasonTest, ARetryDelayStandsBesideTheReason) {
  absl::Status status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryDelay(status), absl::ZeroDuration());
  status = WithReason(WithRetryDelay(status, absl::Milliseconds(1500)), "QUEUE_FULL");
  EXPECT_EQ(RetryDelay(status), absl::Milliseconds(1500));
  EXPECT_EQ(TakeReason(status), (StatusReason{"QUEUE_FULL", {}}));
  EXPECT_EQ(RetryDelay(status), absl::Milliseconds(1500));
  EXPECT_EQ(RetryDelay(WithRetryDelay(status, absl::Seconds(3))), absl::Seconds(3));
}

TEST(StatusReasonTest, OkCarriesNothingAndPlainTextShowsNothingAttached) {
  EXPECT_FALSE(HasReason(WithReason(absl::OkStatus(), "REASON")));
  EXPECT_EQ(RetryDelay(WithRetryDelay(absl::OkStatus(), absl::Seconds(1))), absl::ZeroDuration());
  EXPECT_EQ(PlainText(WithRetryDelay(WithReason(absl::InternalError("it broke"), "R", {{"a", 1}}),
                                     absl::Seconds(1))),
            "INTERNAL: it broke");
}

}  // namespace
}  // namespace octavo
