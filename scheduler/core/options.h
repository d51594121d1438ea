#pragma once

// The settings of the engine: every limit of scheduler/core has its one home here.

#include <cstdint>

#include "absl/status/status.h"
#include "scheduler/core/contiguous_allocator.h"
#include "scheduler/core/kv_policy.h"

namespace octavo {

struct EngineOptions {
  uint32_t context_length = 0;      // tokens, prompt and output together; the model's, or less
  uint32_t vocab_size = INT32_MAX;  // the model's: a worker's token at or above it is nonsense

  // Tokens a step computes, decodes and prefill chunks together. At least max_sequences, so that no
  // decode starves.
  uint32_t max_step_tokens = 2048;
  // Tokens of one prompt a step computes at most, so that decodes do not wait behind a long one. 0
  // = only max_step_tokens limits.
  uint32_t long_prefill_token_limit = 0;
  uint32_t max_sequences = 256;      // running at once
  uint32_t max_steps_in_flight = 2;  // 1 or 2; 2 = the next plan is made while the last one runs

  uint32_t max_waiting_requests = 1024;   // beyond, a submit is refused with RESOURCE_EXHAUSTED
  uint64_t max_waiting_tokens = 8 << 20;  // prompt tokens of the waiting requests together

  // How tables get their blocks. Other policies than paged are baselines: contiguous, sharing
  // nothing.
  KvPolicy kv_policy = KvPolicy::kPaged;
  ContiguousAllocatorKind contiguous_allocator = ContiguousAllocatorKind::kBuddy;  // not of paged

  bool prefix_cache = true;  // false with any policy but paged
  // A prefix hit may end inside a block, at multiples of this many of its tokens: what matches
  // there is copied. 1: at every token. The block size or more: whole blocks only.
  uint32_t prefix_match_unit = 1;
  uint64_t prefix_seed = 0;  // keys the prefix hashes; drawn once per process
  // A request whose prefix another one is computing waits for it in at most this many steps; then
  // it computes the rest itself. 0: it never waits.
  uint32_t max_prefix_wait_steps = 128;
  uint32_t watermark_blocks =
      0;  // an admission leaves this many blocks for those that run; ignored when none runs

  // Refusals in a row, without a completed step between them, after which the replica is given up.
  uint32_t max_consecutive_resyncs = 3;

  uint32_t step_trace_length = 64;     // plans and results kept for GetStepTrace
  uint32_t ended_request_count = 256;  // records of ended requests kept for GetRequest

  // InvalidArgument naming the field, its value and the limit.
  absl::Status Validate() const;
};

}  // namespace octavo
