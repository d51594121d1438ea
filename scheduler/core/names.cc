// The names of the core's enums, as they stand in protos, metrics and logs.

#include "scheduler/core/actions.h"
#include "scheduler/core/introspection.h"

namespace octavo {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kModelLength:
      return "model_length";
    case FinishReason::kPoolExhausted:
      return "pool_exhausted";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kAborted:
      return "aborted";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

const char* SequenceStateName(SequenceState state) {
  switch (state) {
    case SequenceState::kWaiting:
      return "waiting";
    case SequenceState::kRunning:
      return "running";
    case SequenceState::kPausedWaiting:
      return "paused_waiting";
    case SequenceState::kPausedRunning:
      return "paused_running";
    case SequenceState::kEnded:
      return "ended";
  }
  return "unknown";
}

const char* BlockStateName(BlockState state) {
  switch (state) {
    case BlockState::kFree:
      return "free";
    case BlockState::kCached:
      return "cached";
    case BlockState::kHeld:
      return "held";
  }
  return "unknown";
}

}  // namespace octavo
