#pragma once

// The scheduler's engine: who runs, with which blocks, in which step. Sans-IO and deterministic:
// events and `now` come in, actions go out; it has no clock, thread, lock or connection of its own.
//
// The loop that owns it:   engine.Handle(event, now, actions);  …  while (engine.PlanNext(now,
// actions)) {}  then carry out `actions`.
//
// Thread-compatible: owned by one loop; the const accessors are for that loop too.
// Invariants, proved by CheckInvariants() (design: "Conservation is checked, not hoped"):
//  (1) Every block is free, cached or held, and free + cached + held == capacity.
//  (2) A block's reference count is the number of block tables that name it, plus the releases that
//  wait for a step in flight. (3) No block that a step in flight uses is given to anyone else
//  before that step is done. (4) The blocks promised to admitted prompts are never more than the
//  blocks that can be taken. (5) Every request ends exactly once: RequestFinished or
//  RequestRefused. (6) The digest is that of the tables the worker has after the last plan.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/core/actions.h"
#include "scheduler/core/events.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/options.h"

namespace octavo {

class Engine {
 public:
  // REQUIRES: options.Validate() is OK.
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes in one event and appends what follows from it to `actions`. `now` never goes back.
  void Handle(Event event, absl::Time now, std::vector<Action>& actions);

  // Plans the next step if a replica is ready, fewer than max_steps_in_flight are in flight, and
  // there is work: appends SendPlan (after the RequestAdmitted of those it admits) and returns
  // true. Otherwise false; requests may still have ended.
  bool PlanNext(absl::Time now, std::vector<Action>& actions);

  // When a Tick is needed at the latest: the earliest deadline, or InfiniteFuture.
  absl::Time NextDeadline() const;
  // No request is live (waiting, running or paused): a drain is complete.
  bool idle() const;
  bool replica_ready() const;

  // --- Looking inside (AdminService). None changes anything. ---
  SchedulerState State() const;
  const EngineCounters& counters() const;
  // Live requests in the order they would run: running, then waiting, then paused waiting; `first`
  // of them skipped.
  std::vector<RequestRecord> ListRequests(uint32_t first, uint32_t limit) const;
  // Live, or among the last that ended.
  std::optional<RequestRecord> FindRequest(RequestId request_id) const;
  std::optional<RequestRecord> FindRequest(absl::string_view client_request_id) const;
  // Live requests only. Empty entries while it waits.
  std::optional<BlockTableRecord> BlockTableOf(RequestId request_id) const;
  // Blocks [first, first + limit) of the pool.
  std::vector<BlockRecord> ListBlocks(uint32_t first, uint32_t limit) const;
  PrefixLookup LookupPrefix(std::span<const TokenId> tokens, absl::string_view cache_salt) const;
  // The last `limit` steps, oldest first.
  std::vector<StepRecord> StepTrace(uint32_t limit) const;

  // Internal, with what is wrong and where. Costs time proportional to the pool; meant for tests,
  // simulation and AdminService.
  absl::Status CheckInvariants() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace octavo
