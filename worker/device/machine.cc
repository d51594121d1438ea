#include "worker/device/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace octavo {
namespace {

// Limits that say "none" are numbers near 2^63 in version 1 of the hierarchy and "max" in
// version 2.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadFile(path);
  uint64_t value = 0;
  if (!text || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return value;
}

// Folders that limit this process, its own control group first, for `controller` in version 1
// ("memory", "cpu") and for version 2.
std::vector<std::string> ControlGroups(const std::string& root, const std::string& controller) {
  std::vector<std::string> folders;
  const std::optional<std::string> text = ReadFile(root + "/proc/self/cgroup");
  if (!text) return folders;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    // hierarchy id : controllers : path
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    std::string mount = root + "/sys/fs/cgroup";
    if (!parts[1].empty()) {
      const std::vector<std::string> names = absl::StrSplit(parts[1], ',');
      if (std::find(names.begin(), names.end(), controller) == names.end()) continue;
      mount = absl::StrCat(mount, "/", controller);
    }
    std::string path = parts[2];
    while (true) {
      folders.push_back(path == "/" ? mount : mount + path);
      const size_t slash = path.rfind('/');
      if (path.empty() || path == "/" || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return folders;
}

uint64_t MeminfoBytes(const std::string& text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &kib))
      return kib * 1024;
  }
  return 0;
}

// Bytes of a control group that the kernel gives back under pressure: page cache not in use.
uint64_t ReclaimableBytes(const std::string& folder) {
  const std::optional<std::string> text = ReadFile(folder + "/memory.stat");
  if (!text) return 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    uint64_t bytes = 0;
    if (words.size() == 2 && (words[0] == "inactive_file" || words[0] == "total_inactive_file") &&
        absl::SimpleAtoi(words[1], &bytes)) {
      return bytes;
    }
  }
  return 0;
}

}  // namespace

uint32_t CoreQuota(const std::string& root, uint32_t cores) {
  for (const std::string& folder : ControlGroups(root, "cpu")) {
    double quota = 0, period = 0;
    if (const auto text =
            ReadFile(folder + "/cpu.max")) {  // version 2: "QUOTA PERIOD" or "max PERIOD"
      const std::vector<std::string> words =
          absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
      if (words.size() != 2 || !absl::SimpleAtod(words[0], &quota) ||
          !absl::SimpleAtod(words[1], &period))
        continue;
    } else {
      const auto v1_quota = ReadNumber(folder + "/cpu.cfs_quota_us");  // -1, no number here: none
      const auto v1_period = ReadNumber(folder + "/cpu.cfs_period_us");
      if (!v1_quota || !v1_period) continue;
      quota = static_cast<double>(*v1_quota);
      period = static_cast<double>(*v1_period);
    }
    if (!(quota > 0 && period > 0)) continue;
    cores = std::min(cores, static_cast<uint32_t>(std::min(std::ceil(quota / period), 1e6)));
  }
  return std::max(cores, 1u);
}

uint32_t AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return CoreQuota("", static_cast<uint32_t>(std::max(count, 1)));
}

MachineMemory ReadMachineMemoryBelow(const std::string& root) {
  const std::string meminfo = ReadFile(root + "/proc/meminfo").value_or("");
  MachineMemory memory{.total_bytes = MeminfoBytes(meminfo, "MemTotal:"),
                       .available_bytes = MeminfoBytes(meminfo, "MemAvailable:")};
  for (const std::string& folder : ControlGroups(root, "memory")) {
    auto limit = ReadNumber(folder + "/memory.max");
    auto usage = ReadNumber(folder + "/memory.current");
    if (!limit) limit = ReadNumber(folder + "/memory.limit_in_bytes");
    if (!usage) usage = ReadNumber(folder + "/memory.usage_in_bytes");
    if (!limit || *limit >= kNoLimit) continue;
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    const uint64_t used = usage.value_or(0) - std::min(usage.value_or(0), ReclaimableBytes(folder));
    memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, used));
  }
  return memory;
}

MachineMemory ReadMachineMemory() { return ReadMachineMemoryBelow(""); }

}  // namespace octavo
