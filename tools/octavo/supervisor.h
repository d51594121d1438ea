#pragma once

// Keeps a few child processes running: starts them, restarts one that dies with a growing delay,
// and stops them in order.
//
// Thread rule: one thread, which has SIGCHLD, SIGTERM and SIGINT blocked (BlockSignals) before any
// other thread exists. Invariants: (1) a child is in its own process group, so that Ctrl-C in a
// terminal reaches this process alone. (2) Run returns only when no child is left.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace octavo::cli {

struct Child {
  std::string name;                    // "scheduler", as in messages
  std::vector<std::string> arguments;  // argv, the program's path first

  // State.
  pid_t pid = 0;  // 0: not running
  absl::Time started;
  absl::Time restart_at = absl::InfiniteFuture();
  absl::Duration backoff;
};

class Supervisor {
 public:
  static constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
  static constexpr absl::Duration kLastBackoff = absl::Seconds(10);
  static constexpr int kStable = 10;  // running so many times its delay forgives earlier deaths

  static void BlockSignals();

  // Children stop in the order given, each when the one before it has ended.
  explicit Supervisor(std::vector<Child> children) : children_(std::move(children)) {}

  // Gives the argument after `flag` ("--listen") of the child `name` this value, from its next
  // start on. Without such an argument nothing changes.
  void SetArgument(const std::string& name, const std::string& flag, const std::string& value);

  // Kills the child `name` if it is this process, so that it is restarted: it hangs.
  void KillHung(const std::string& name, pid_t pid);

  // Starts every child and returns when all have ended: after SIGTERM or SIGINT (a second one
  // kills), or when a child ends with `fatal_exit_code` (restarting would not help). Returns the
  // exit code for this process. `tick` is called about every 100 ms.
  int Run(int fatal_exit_code, const std::function<void()>& tick);

 private:
  void Start(Child& child);
  void Reap(int fatal_exit_code);
  void StopNext();
  bool AnyRunning() const;

  std::vector<Child> children_;
  bool stopping_ = false;
  int exit_code_ = 0;
};

}  // namespace octavo::cli
