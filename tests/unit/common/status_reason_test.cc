#include "common/status_reason.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(StatusReasonTest, TheReasonAndItsNumbersComeOutOnce) {
  absl::Status status = WithReason(absl::FailedPreconditionError("too long"), "CANNOT_FIT",
                                   {{"needed_blocks", 40}, {"pool_blocks", 18446744073709551615u}});
  EXPECT_EQ(status.message(), "too long");
  EXPECT_EQ(TakeReason(status),
            (StatusReason{"CANNOT_FIT",
                          {{"needed_blocks", "40"}, {"pool_blocks", "18446744073709551615"}}}));
  EXPECT_EQ(status, absl::FailedPreconditionError("too long"));
  EXPECT_EQ(TakeReason(status), std::nullopt);
}

TEST(StatusReasonTest, AReasonNeedsNoNumbers) {
  absl::Status status = WithReason(absl::UnavailableError("gone"), "DRAINING", {});
  EXPECT_EQ(TakeReason(status), (StatusReason{"DRAINING", {}}));
}

}  // namespace
}  // namespace octavo
