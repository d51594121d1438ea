#include "scheduler/core/options.h"

#include "absl/strings/str_cat.h"

namespace octavo {
namespace {

absl::Status OutOfRange(const char* field, uint64_t value, const char* rule) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", rule));
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  if (context_length < 2) return OutOfRange("context_length", context_length, "at least 2 tokens");
  if (vocab_size < 1) return OutOfRange("vocab_size", vocab_size, "at least 1");
  if (max_sequences < 1) return OutOfRange("max_sequences", max_sequences, "at least 1");
  if (max_step_tokens < max_sequences) {
    return OutOfRange("max_step_tokens", max_step_tokens,
                      absl::StrCat("at least max_sequences (", max_sequences, ")").c_str());
  }
  if (max_steps_in_flight < 1 || max_steps_in_flight > 2) {
    return OutOfRange("max_steps_in_flight", max_steps_in_flight, "1 or 2");
  }
  if (max_waiting_requests < 1) {
    return OutOfRange("max_waiting_requests", max_waiting_requests, "at least 1");
  }
  // Or a prompt could be told for ever to come back later.
  if (max_waiting_tokens < context_length) {
    return OutOfRange("max_waiting_tokens", max_waiting_tokens,
                      absl::StrCat("at least context_length (", context_length, ")").c_str());
  }
  if (kv_policy != KvPolicy::kPaged && prefix_cache) {
    return absl::InvalidArgumentError(absl::StrCat("kv_policy is ", KvPolicyName(kv_policy),
                                                   ", which shares nothing; prefix_cache must be "
                                                   "false"));
  }
  if (prefix_match_unit < 1) {
    return OutOfRange("prefix_match_unit", prefix_match_unit, "at least 1 token");
  }
  if (max_consecutive_resyncs < 1) {
    return OutOfRange("max_consecutive_resyncs", max_consecutive_resyncs, "at least 1");
  }
  return absl::OkStatus();
}

}  // namespace octavo
