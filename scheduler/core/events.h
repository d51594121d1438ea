#pragma once

// What can happen to the engine. Everything that changes it is one of these values, so that a
// recorded sequence of events (and of calls to PlanNext) replays to the same decisions.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/beam_search_params.h"
#include "common/ids.h"
#include "common/kv_layout.h"
#include "common/sampling_params.h"
#include "common/step_result.h"

namespace octavo {

constexpr uint32_t kMaxSampleCount = 64;

// A request, validated at the border (vocabulary, ranges). Answered by RequestAdmitted or
// RequestRefused.
struct SubmitRequest {
  RequestId request_id;           // the caller's counter; never reused
  std::string client_request_id;  // the client's own name; two live requests may not share one;
                                  // empty = none
  std::vector<TokenId> prompt;    // at least one token
  SamplingParams sampling;        // stop_token_ids hold every token id that ends the request
  uint64_t seed = 0;
  uint32_t sample_count =
      1;  // parallel samples, 1 to kMaxSampleCount; sample i draws with SampleSeed(seed, i)
  std::optional<BeamSearchParams> beams;  // a beam search instead of samples: of `sampling` only
                                          // the stop tokens count, and there are no prompt_logprobs
  std::optional<uint32_t>
      max_tokens;          // output tokens, at least 1; absent = what the model's length leaves
  std::string cache_salt;  // prefixes are shared only between equal salts
  int32_t priority = 0;    // lower is sooner
  absl::Time deadline = absl::InfiniteFuture();
  bool prompt_logprobs =
      false;  // score prompt tokens 1, 2, …: the whole prompt is computed, prefix hits are skipped
  bool no_cache = false;  // neither uses the prefix index nor enters it
};

enum class CancelReason : uint8_t {
  kClientGone,  // disconnected or cancelled its call
  kAborted,     // Abort, or an operator
  kDeadline,    // the transport saw the deadline first
};

// Ends a request in any state. Unknown or already ended: ignored and counted.
struct CancelRequest {
  RequestId request_id;
  CancelReason reason = CancelReason::kClientGone;
};

// Ends one sequence of a request at a stop string, which the detokenizer matched: of its output,
// `kept_token_count` tokens belong to the answer. Unknown or already ended: ignored and counted.
struct StopSequence {
  RequestId request_id;
  uint32_t sequence_index = 0;
  uint32_t kept_token_count = 0;
};

// A slow reader: the request gets no further steps until resumed (the step in flight still
// delivers). Others go on, and may take its blocks if they need them.
struct PauseRequest {
  RequestId request_id;
};
struct ResumeRequest {
  RequestId request_id;
};

// All ranks answered. May be a duplicate, late, early or of an older epoch.
struct StepCompleted {
  StepResult result;
};

// The worker did not apply the plan: digest mismatch or a step it did not expect
// (FAILED_PRECONDITION).
struct StepRefused {
  ReplicaId replica_id;
  Epoch epoch;
  StepNumber step;
  absl::Status status;
};

// The pool of one layer group: what the worker holds memory for.
struct LayerGroupPool {
  KvLayout layout;
  uint32_t block_count = 0;  // at least 1
};

// A replica has loaded its weights and its (empty) pool. `epoch` is above every earlier one.
struct ReplicaReady {
  ReplicaId replica_id;
  Epoch epoch;
  std::vector<LayerGroupPool> layer_groups;  // one today
};

// The replica's pages are gone, or out of reach. Of an older epoch: ignored.
struct ReplicaLost {
  ReplicaId replica_id;
  Epoch epoch;
  absl::Status status;
};

// From now on submits are refused with UNAVAILABLE; requests already accepted run to their end.
struct DrainStarted {};

// Forget every cached prefix. Refused while blocks are held; answered by PrefixCacheReset.
struct ResetPrefixCache {
  uint64_t tag = 0;  // returned in the answer
};

// Time passes: deadlines are looked at. Every other event does so too.
struct Tick {};

using Event = std::variant<SubmitRequest, CancelRequest, StopSequence, PauseRequest, ResumeRequest,
                           StepCompleted, StepRefused, ReplicaReady, ReplicaLost, DrainStarted,
                           ResetPrefixCache, Tick>;

}  // namespace octavo
