#pragma once

// How much KV memory a request is given, and when. `paged` takes one block at a time; the others
// reserve a contiguous run at admission, as engines before paging did (Kwon et al., "Efficient
// Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023, section 6):
// they exist to be measured against.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace octavo {

enum class KvPolicy : uint8_t {
  kPaged,        // blocks as tokens come
  kReserveMax,   // the longest a request may become (Orca Max)
  kReservePow2,  // prompt, and output rounded up to a power of two (Orca Pow2)
  kOracle,       // prompt and true output, known beforehand (Orca Oracle)
  kStatic,       // as kReserveMax, in batches: the next one starts when all of the last have ended
                 // (FasterTransformer)
};

constexpr KvPolicy kKvPolicies[] = {KvPolicy::kPaged, KvPolicy::kReserveMax, KvPolicy::kReservePow2,
                                    KvPolicy::kOracle, KvPolicy::kStatic};

// "paged", "reserve_max", "reserve_pow2", "oracle", "static".
const char* KvPolicyName(KvPolicy policy);
absl::StatusOr<KvPolicy> ParseKvPolicy(const std::string& name);

// Tokens a request with this prompt and final output is given room for when it is admitted; for
// kPaged the room it has in the end. At most `max_model_len`.
// REQUIRES: prompt_tokens + output_tokens <= max_model_len.
uint32_t ReservedTokens(KvPolicy policy, uint32_t prompt_tokens, uint32_t output_tokens,
                        uint32_t max_model_len);

}  // namespace octavo
