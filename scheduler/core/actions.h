#pragma once

// What the engine wants done: values for the loop (scheduler/runtime) to carry out, in order.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/step_plan.h"
#include "common/step_result.h"

namespace octavo {

// Send to every rank of plan.replica_id.
struct SendPlan {
  StepPlan plan;
};

// The request has its first place in a step. Once per request; resuming after a preemption does not
// repeat it.
struct RequestAdmitted {
  RequestId request_id;
  uint32_t cached_token_count = 0;  // prompt tokens whose KV was found in the prefix index
  absl::Duration queue_time;
};

// One token of a step's result.
struct GeneratedToken {
  RequestId request_id;
  uint32_t sequence_index = 0;  // within the request; 0 unless it has several sequences
  bool scores_prompt = false;   // a prompt token's log-probability, not a new token
  TokenOutcome outcome;         // position is absolute: output token i of a prompt of P is at P + i
  uint32_t first_top = 0;       // outcome.top_count entries of TokensGenerated::top from here
};

// A step's tokens, flat. Those of one request stand together, in the order of their positions. A
// stop token is among them. A request that ends with this step has its RequestFinished after it.
struct TokensGenerated {
  std::vector<GeneratedToken> tokens;
  std::vector<TokenLogprob> top;
};

enum class FinishReason : uint8_t {
  kStopToken,      // SequenceFinished::stop_token says which
  kStopString,     // matched outside, told by StopSequence
  kLength,         // max_tokens reached
  kModelLength,    // the model's context length reached
  kPoolExhausted,  // alone in the pool, and it no longer fits
  kCancelled,      // the client went away
  kAborted,        // told to
  kDeadline,       // its deadline passed
  kError,          // RequestFinished::status says what
};
const char* FinishReasonName(FinishReason reason);  // "stop_token", …

// A step of a beam search is done: each running beam has this many output tokens. Its hypotheses
// come at the end, as SequenceFinished.
struct BeamsAdvanced {
  RequestId request_id;
  uint32_t token_count = 0;
};

// One sequence of a request is complete: a sample at its end, or a hypothesis of a beam search,
// which has its tokens here and gave none before. The others of the request go on.
struct SequenceFinished {
  RequestId request_id;
  uint32_t sequence_index = 0;  // the sample's, or the hypothesis' rank
  FinishReason reason = FinishReason::kError;
  std::optional<TokenId> stop_token;
  uint32_t completion_token_count =
      0;                        // stop token included; at a stop string what the match keeps
  std::vector<TokenId> tokens;  // of a hypothesis, stop token included
  float score = 0;              // of a hypothesis
};

// Exactly one of RequestFinished and RequestRefused ends every request, and nothing follows it.
// With an OK status the SequenceFinished of all its sequences came before.
struct RequestFinished {
  RequestId request_id;
  FinishReason reason = FinishReason::kError;  // with an OK status that of the last sequence to end
  absl::Status status;                         // not OK for kCancelled, kAborted, kDeadline, kError
  uint32_t prompt_token_count = 0;
  uint32_t completion_token_count = 0;  // of all sequences
  uint32_t cached_token_count = 0;
  uint32_t preemption_count = 0;
  absl::Time submitted;
  std::optional<absl::Time> admitted;     // absent: it never ran
  std::optional<absl::Time> first_token;  // absent: it produced none
  absl::Time finished;
};

struct RequestRefused {
  RequestId request_id;
  absl::Status status;
};

struct PrefixCacheReset {
  uint64_t tag = 0;
  absl::Status status;
};

// The replica answered nonsense, or refused too often: the engine has already treated it as lost.
// Drop its connection.
struct ReplicaRejected {
  ReplicaId replica_id;
  Epoch epoch;
  absl::Status status;
};

using Action =
    std::variant<SendPlan, RequestAdmitted, TokensGenerated, BeamsAdvanced, SequenceFinished,
                 RequestFinished, RequestRefused, PrefixCacheReset, ReplicaRejected>;

}  // namespace octavo
