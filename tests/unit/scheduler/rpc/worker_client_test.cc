#include "scheduler/rpc/worker_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace octavo {
namespace {

// Counts what is reported, and how much of it failed.
class CountingEvents final : public WorkerEvents {
 public:
  void OnModelLoaded(LinkId, absl::StatusOr<LoadedModel> loaded) override { Count(loaded.ok()); }
  void OnReplicaStarted(LinkId, absl::Status status) override { Count(status.ok()); }
  void OnResult(LinkId, StepResult) override { Count(true); }
  void OnStreamEnded(LinkId, absl::Status status) override { Count(status.ok()); }

  int reports() const { return reports_; }
  int failures() const { return failures_; }

 private:
  void Count(bool ok) {
    ++reports_;
    if (!ok) ++failures_;
  }

  std::atomic<int> reports_ = 0;
  std::atomic<int> failures_ = 0;
};

// Each client's channel is the process's last here, and its calls end on gRPC's threads while it is
// destroyed: whoever drops the channel last must not be one of those threads.
TEST(WorkerClientTest, DestroyedAtAnyMomentEachCallHasReportedOnce) {
  const std::string nobody = absl::StrCat("unix:", testing::TempDir(), "/worker_client_test_none");
  GrpcWorkerDialer dialer;
  for (int round = 0; round < 1000; ++round) {
    CountingEvents events;
    std::unique_ptr<WorkerClient> client = dialer.Dial(nobody, LinkId(round), &events);
    client->LoadModel({});
    if (round % 2 == 0) client->StartReplica({});
    if (round % 3 == 0) client->OpenStream();
    if (round % 4 == 0) {  // an even round: it has started a replica too
      while (events.reports() < 2) std::this_thread::yield();
    }
    client.reset();
    EXPECT_EQ(events.reports(), 1 + (round % 2 == 0 ? 1 : 0) + (round % 3 == 0 ? 1 : 0));
    EXPECT_EQ(events.failures(), events.reports());
  }
}

}  // namespace
}  // namespace octavo
