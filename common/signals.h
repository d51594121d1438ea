#pragma once

// The signals that end a server process, taken by sigwait and never by a handler (gRPC's threads
// must not see them). Call before any thread exists, since threads inherit the mask.

#include <pthread.h>
#include <signal.h>

namespace octavo {

// Blocks SIGINT and SIGTERM for this thread and those to come, ignores SIGPIPE; returns the two, to
// wait for.
inline sigset_t BlockTerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

}  // namespace octavo
