#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/wire/errors.h"
#include "octavo/v1/admin_service.grpc.pb.h"
#include "tools/octavo/client.h"
#include "tools/octavo/commands.h"

ABSL_FLAG(absl::Duration, interval, absl::Seconds(1), "Time between two looks of `octavo top`.");
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

}  // namespace

int Top(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    std::cerr << "octavo: top takes no arguments\n";
    return 2;
  }
  const auto admin = v1::AdminService::NewStub(DialServer());
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  v1::GetSchedulerStateResponse before;
  for (uint32_t look = 0; absl::GetFlag(FLAGS_looks) == 0 || look < absl::GetFlag(FLAGS_looks);
       ++look) {
    if (look > 0)
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(absl::GetFlag(FLAGS_interval)));
    v1::GetSchedulerStateResponse now;
    grpc::ClientContext context;
    const grpc::Status status = admin->GetSchedulerState(&context, {}, &now);
    if (!status.ok()) return Report(wire::FromGrpc(status));
    if (terminal) std::cout << "\x1b[H\x1b[2J";  // home, clear
    std::cout << Draw(now, look == 0 ? now : before) << std::flush;
    before = std::move(now);
  }
  return 0;
}

}  // namespace octavo::cli
