#pragma once

// The command line of octavo-scheduler as one checked value.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/rpc/validation.h"
#include "scheduler/runtime/loop.h"

namespace octavo {

struct SchedulerConfig {
  std::string model_path;
  std::string model_name;
  std::string listen;          // comma-separated, as is admin_listen
  std::string admin_listen;    // empty: with `listen`
  std::string metrics_listen;  // empty: none
  bool exit_with_parent = false;
  std::string ready_file;
  LoopOptions loop;  // all but what the model brings (context length, fingerprint, KV shape)
  std::optional<uint32_t> context_length;
  BorderLimits limits;
  bool log_prompts = false;
  bool kv_event_tokens = false;
  absl::Duration drain_timeout;
  absl::Duration probe_interval;
  std::map<std::string, std::string> limits_by_flag;  // for GetSchedulerState
};

// InvalidArgument naming the flag, its value and its limit.
absl::StatusOr<SchedulerConfig> ConfigFromFlags();

}  // namespace octavo
