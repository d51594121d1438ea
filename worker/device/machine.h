#pragma once

// What this process may use of the machine: cores and memory, as the kernel and the container limit
// them. Read once at start. Thread-safe: pure functions over files.

#include <cstdint>
#include <string>

namespace octavo {

// Cores this process may use: its affinity mask, cut to the CPU quota of its control group and of
// those above it (rounded up). At least 1.
uint32_t AvailableCores();

// Memory of the machine, cut to the limits of the control groups: all of it, and what this process
// can still take without swapping.
struct MachineMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;

  friend bool operator==(const MachineMemory&, const MachineMemory&) = default;
};
MachineMemory ReadMachineMemory();

// The same from files below `root` ("" in production): /proc/meminfo, /proc/self/cgroup,
// /sys/fs/cgroup, both versions of the hierarchy.
uint32_t CoreQuota(const std::string& root, uint32_t cores);
MachineMemory ReadMachineMemoryBelow(const std::string& root);

}  // namespace octavo
