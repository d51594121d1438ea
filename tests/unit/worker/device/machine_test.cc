#include "worker/device/machine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace octavo {
namespace {

// A machine as files below a folder of its own.
class MachineTest : public testing::Test {
 protected:
  MachineTest()
      : root_(testing::TempDir() + "machine_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo",
          "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   12000000 kB\n");
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, WithoutControlGroupsTheMachineIsTheLimit) {
  EXPECT_EQ(ReadMachineMemoryBelow(root_),
            (MachineMemory{16'000'000ull * 1024, 12'000'000ull * 1024}));
  EXPECT_EQ(CoreQuota(root_, 8), 8u);
}

TEST_F(MachineTest, TheTightestControlGroupOnTheWayUpIsTheLimit) {
  Write("/proc/self/cgroup", "0::/pod/worker\n");
  Write("/sys/fs/cgroup/pod/worker/memory.max", "max\n");
  Write("/sys/fs/cgroup/pod/worker/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pod/memory.max", "4000000000\n");
  Write("/sys/fs/cgroup/pod/memory.current", "3000000000\n");
  Write("/sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 500000000\nactive_file 7\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(ReadMachineMemoryBelow(root_), (MachineMemory{4'000'000'000, 1'500'000'000}));
  EXPECT_EQ(CoreQuota(root_, 8), 3u);
  EXPECT_EQ(CoreQuota(root_, 2), 2u);
}

TEST_F(MachineTest, AQuotaBelowOneCoreStillGivesOne) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(CoreQuota(root_, 8), 1u);
}

TEST_F(MachineTest, VersionOneOfTheHierarchyIsReadToo) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/box\n4:memory:/box\n");
  Write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2000000000\n");
  Write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "500000000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadMachineMemoryBelow(root_), (MachineMemory{2'000'000'000, 1'500'000'000}));
  EXPECT_EQ(CoreQuota(root_, 8), 2u);
}

TEST_F(MachineTest, UseAboveTheLimitLeavesNothingRatherThanALot) {
  Write("/proc/self/cgroup", "0::/g\n");
  Write("/sys/fs/cgroup/g/memory.max", "1000\n");
  Write("/sys/fs/cgroup/g/memory.current", "5000\n");
  EXPECT_EQ(ReadMachineMemoryBelow(root_), (MachineMemory{1000, 0}));
}

TEST(ThisMachineTest, HasACoreAndMemory) {
  EXPECT_GE(AvailableCores(), 1u);
  const MachineMemory memory = ReadMachineMemory();
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_GE(memory.total_bytes, memory.available_bytes);
}

}  // namespace
}  // namespace octavo
