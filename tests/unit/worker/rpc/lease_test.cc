#include "worker/rpc/lease.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(LeaseTest, ExpiresWhenTheSchedulerIsSilentForLongerThanItsLength) {
  ManualClock clock;
  Lease lease(clock);
  clock.Advance(absl::Milliseconds(500));
  EXPECT_FALSE(lease.Expired(absl::Milliseconds(500)));
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(lease.Expired(absl::Milliseconds(500)));
  lease.Renew();
  EXPECT_FALSE(lease.Expired(absl::Milliseconds(500)));
}

TEST(LeaseTest, WithoutALengthNothingExpires) {
  ManualClock clock;
  Lease lease(clock);
  clock.Advance(absl::Hours(1));
  EXPECT_FALSE(lease.Expired(absl::ZeroDuration()));
}

}  // namespace
}  // namespace octavo
