#include "tools/octavo/supervisor.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

extern char** environ;

namespace octavo::cli {
namespace {

sigset_t SupervisedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

std::string DescribeEnd(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was killed by ", strsignal(WTERMSIG(status)));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

void Supervisor::BlockSignals() {
  const sigset_t signals = SupervisedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void Supervisor::SetArgument(const std::string& name, const std::string& flag,
                             const std::string& value) {
  for (Child& child : children_) {
    if (child.name != name) continue;
    const auto found = std::find(child.arguments.begin(), child.arguments.end(), flag);
    if (found != child.arguments.end() && found + 1 != child.arguments.end()) *(found + 1) = value;
  }
}

void Supervisor::KillHung(const std::string& name, pid_t pid) {
  for (const Child& child : children_) {
    if (child.name != name || child.pid != pid || pid == 0) continue;
    std::cerr << "octavo: the " << name << " (process " << pid << ") hangs; killing it\n";
    kill(pid, SIGKILL);
  }
}

void Supervisor::Start(Child& child) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv;
  argv.reserve(child.arguments.size() + 1);
  for (std::string& argument : child.arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&child.pid, argv[0], nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  child.started = absl::Now();
  child.restart_at = absl::InfiniteFuture();
  if (error != 0) {
    child.pid = 0;
    std::cerr << "octavo: cannot start the " << child.name << " (" << argv[0]
              << "): " << strerror(error) << "\n";
    exit_code_ = 1;
    stopping_ = true;
    return;
  }
  std::cerr << "octavo: started the " << child.name << ", process " << child.pid << "\n";
}

void Supervisor::Reap(int fatal_exit_code) {
  for (Child& child : children_) {
    int status = 0;
    if (child.pid == 0 || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    const pid_t pid = child.pid;
    child.pid = 0;
    if (stopping_) {
      std::cerr << "octavo: the " << child.name << " (process " << pid << ") "
                << DescribeEnd(status) << "\n";
      // A child that was told to end before it listened for the signal ends by it.
      const bool told = WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
      if (!told && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        exit_code_ = std::max(exit_code_, 1);
      continue;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == fatal_exit_code) {
      std::cerr << "octavo: the " << child.name
                << " refuses its configuration (see above); stopping\n";
      exit_code_ = fatal_exit_code;
      stopping_ = true;
      continue;
    }
    const absl::Time now = absl::Now();
    child.backoff =
        now - child.started > kStable * child.backoff || child.backoff == absl::ZeroDuration()
            ? kFirstBackoff
            : std::min(child.backoff * 2, kLastBackoff);
    child.restart_at = now + child.backoff;
    std::cerr << "octavo: the " << child.name << " (process " << pid << ") " << DescribeEnd(status)
              << "; starting it again in " << absl::FormatDuration(child.backoff) << "\n";
  }
}

bool Supervisor::AnyRunning() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.pid != 0; });
}

// Sends SIGTERM to the first child still running.
void Supervisor::StopNext() {
  for (Child& child : children_) {
    if (child.pid == 0) continue;
    kill(child.pid, SIGTERM);
    return;
  }
}

int Supervisor::Run(int fatal_exit_code, const std::function<void()>& tick) {
  const sigset_t signals = SupervisedSignals();
  for (Child& child : children_) {
    if (!stopping_) Start(child);
  }
  bool stop_sent = false;
  while (true) {
    if (stopping_ && !stop_sent) {
      StopNext();
      stop_sent = true;
    }
    if (stopping_ && !AnyRunning()) return exit_code_;
    const timespec wait = absl::ToTimespec(absl::Milliseconds(100));
    const int signal_number = sigtimedwait(&signals, nullptr, &wait);
    if (signal_number == SIGTERM || signal_number == SIGINT) {
      if (stopping_) {
        std::cerr << "octavo: second signal, ending at once\n";
        for (const Child& child : children_) {
          if (child.pid != 0) kill(child.pid, SIGKILL);
        }
      } else {
        std::cerr << "octavo: stopping; running requests finish first (again to end at once)\n";
        stopping_ = true;
      }
      continue;
    }
    if (signal_number == SIGCHLD) {
      const bool was_stopping = stopping_;
      Reap(fatal_exit_code);
      if (was_stopping) stop_sent = false;  // the next one's turn
    }
    if (stopping_) continue;
    for (Child& child : children_) {
      if (child.pid == 0 && absl::Now() >= child.restart_at) Start(child);
    }
    tick();
  }
}

}  // namespace octavo::cli
