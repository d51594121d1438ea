#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/wire/errors.h"
#include "octavo/v1/admin_service.grpc.pb.h"
#include "tools/octavo/client.h"
#include "tools/octavo/commands.h"
#include "tools/octavo/pool_view.h"

ABSL_FLAG(absl::Duration, interval, absl::Seconds(1), "Time between two looks of `octavo top`.");
ABSL_FLAG(
    bool, pool, false,
    "Show the KV pool: a picture of its blocks, who holds them, hit ratio and waste over time.");
ABSL_FLAG(uint32_t, looks, 0, "Stop after this many looks; 0: until Ctrl-C.");

namespace octavo::cli {
namespace {

constexpr int kBarWidth = 50;

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// "##########++++......" : held, cached, free.
std::string Bar(const v1::PoolState& pool) {
  const auto width = [&](uint64_t blocks) {
    return static_cast<int>(std::lround(Share(blocks, pool.block_count()) * kBarWidth));
  };
  const int held = width(pool.held_blocks());
  const int used = width(uint64_t{pool.held_blocks()} + pool.cached_blocks());
  return std::string(held, '#') + std::string(std::max(used - held, 0), '+') +
         std::string(std::max(kBarWidth - std::max(used, held), 0), '.');
}

// One look at the scheduler; speeds are of the time since `before`.
std::string Draw(const v1::GetSchedulerStateResponse& now,
                 const v1::GetSchedulerStateResponse& before) {
  const double seconds = now.uptime_seconds() - before.uptime_seconds();
  const auto rate = [&](uint64_t a, uint64_t b) {
    return seconds > 0 && a >= b ? static_cast<double>(a - b) / seconds : 0.0;
  };
  std::string out = absl::StrFormat("octavo %s  %s  up %.0f s%s\n", now.version(), now.model(),
                                    now.uptime_seconds(), now.draining() ? "  draining" : "");
  for (const v1::ReplicaState& replica : now.replicas()) {
    absl::StrAppendFormat(&out, "replica %u    epoch %u, step %u, %s\n", replica.replica_id(),
                          replica.epoch(), replica.applied_step(),
                          replica.ready() ? "ready" : "not ready: " + replica.detail());
  }
  absl::StrAppendFormat(&out, "requests     %u running, %u waiting, %u paused; %u preemptions\n",
                        now.running_requests(), now.waiting_requests(), now.paused_requests(),
                        now.preemptions());
  absl::StrAppendFormat(&out, "speed        %.1f tok/s generated, %.1f tok/s of prompts\n",
                        rate(now.generation_tokens(), before.generation_tokens()),
                        rate(now.prompt_tokens(), before.prompt_tokens()));
  absl::StrAppendFormat(&out, "prefix hits  %.1f %% of %u prompt tokens\n",
                        100 * Share(now.prefix_hit_tokens(), now.prefix_query_tokens()),
                        now.prefix_query_tokens());
  for (const v1::PoolState& pool : now.pools()) {
    absl::StrAppendFormat(&out, "pool %u.%u     %u blocks of %u tokens\n             [%s]\n",
                          pool.replica_id(), pool.layer_group(), pool.block_count(),
                          pool.block_size(), Bar(pool));
    absl::StrAppendFormat(&out, "             %u held # (%u shared), %u cached +, %u free .\n",
                          pool.held_blocks(), pool.shared_blocks(), pool.cached_blocks(),
                          pool.free_blocks());
  }
  return out;
}

// What the terminal is now; 80 x 24 and plain where there is none.
Screen ScreenNow(bool is_terminal) {
  Screen screen;
  if (!is_terminal) return screen;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  }
  const char* no_color = std::getenv("NO_COLOR");  // no-color.org
  screen.color = no_color == nullptr || *no_color == '\0';
  screen.unicode = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  return screen;
}

// On a terminal in the place of what was shown before, without flicker.
void Show(const std::string& text, bool is_terminal) {
  if (!is_terminal) {
    std::cout << text << std::flush;
    return;
  }
  // Home; each line is erased before it is written, the rest at the end.
  std::cout << "\x1b[H\x1b[K" << absl::StrReplaceAll(text, {{"\n", "\n\x1b[K"}}) << "\x1b[J"
            << std::flush;
}

// SIGWINCH, which ends a Wait, is let in nowhere else, so that none is missed. REQUIRES: no other
// thread yet.
void HearOfResizes() {
  struct sigaction heard = {};
  heard.sa_handler = [](int) {};
  sigaction(SIGWINCH, &heard, nullptr);
  sigset_t resized;
  sigemptyset(&resized);
  sigaddset(&resized, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &resized, nullptr);
}

// Until the next look, or until the terminal has another size.
void Wait() {
  const timespec interval =
      absl::ToTimespec(std::max(absl::GetFlag(FLAGS_interval), absl::Milliseconds(1)));
  sigset_t none;
  sigemptyset(&none);
  ppoll(nullptr, 0, &interval, &none);
}

}  // namespace

int Top(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    std::cerr << "octavo: top takes no arguments\n";
    return 2;
  }
  HearOfResizes();
  const auto admin = v1::AdminService::NewStub(DialServer());
  const char* kind = std::getenv("TERM");
  const bool is_terminal =
      isatty(STDOUT_FILENO) != 0 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
  setlocale(LC_CTYPE, "");
  v1::GetSchedulerStateResponse before;
  PoolHistory history;
  for (uint32_t look = 0; absl::GetFlag(FLAGS_looks) == 0 || look < absl::GetFlag(FLAGS_looks);
       ++look) {
    if (look > 0) Wait();
    PoolLook now;
    grpc::ClientContext context;
    grpc::Status status = admin->GetSchedulerState(&context, {}, &now.state);
    const Screen screen = ScreenNow(is_terminal);
    if (status.ok() && absl::GetFlag(FLAGS_pool)) {
      v1::GetPoolMapRequest request;
      request.set_max_cells(CellsOn(screen));
      grpc::ClientContext map_context;
      status = admin->GetPoolMap(&map_context, request, &now.map);
    }
    if (!status.ok()) return Report(wire::FromGrpc(status));
    if (look == 0 && is_terminal) std::cout << "\x1b[2J";  // clear
    if (absl::GetFlag(FLAGS_pool)) {
      history.Add(now);
      Show(DrawPool(now, history, screen), is_terminal);
    } else {
      Show(Draw(now.state, look == 0 ? now.state : before), is_terminal);
    }
    before = std::move(now.state);
  }
  return 0;
}

}  // namespace octavo::cli
