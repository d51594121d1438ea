#include "scheduler/core/kv_policy.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace octavo {

const char* KvPolicyName(KvPolicy policy) {
  switch (policy) {
    case KvPolicy::kPaged:
      return "paged";
    case KvPolicy::kReserveMax:
      return "reserve_max";
    case KvPolicy::kReservePow2:
      return "reserve_pow2";
    case KvPolicy::kOracle:
      return "oracle";
    case KvPolicy::kStatic:
      return "static";
  }
  return "";
}

absl::StatusOr<KvPolicy> ParseKvPolicy(const std::string& name) {
  std::string names;
  for (const KvPolicy policy : kKvPolicies) {
    if (name == KvPolicyName(policy)) return policy;
    absl::StrAppend(&names, names.empty() ? "" : ", ", KvPolicyName(policy));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kv_policy=", name, ": it must be one of ", names));
}

uint32_t ReservedTokens(KvPolicy policy, uint32_t prompt_tokens, uint32_t output_tokens,
                        uint32_t max_model_len) {
  switch (policy) {
    case KvPolicy::kReserveMax:
    case KvPolicy::kStatic:
      return max_model_len;
    case KvPolicy::kReservePow2:
      return std::min(prompt_tokens + std::bit_ceil(std::max(output_tokens, 1u)), max_model_len);
    case KvPolicy::kPaged:
    case KvPolicy::kOracle:
      break;
  }
  return prompt_tokens + output_tokens;
}

}  // namespace octavo
