#include "tools/octavo/capacity/policy_table.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/kv_layout.h"

namespace octavo::cli {
namespace {

absl::Status Validate(const std::vector<RequestLength>& requests, const PolicyPool& pool) {
  if (pool.block_count < 1)
    return absl::InvalidArgumentError("num_blocks is 0; it must be at least 1");
  if (pool.block_size < 1 || pool.block_size > kMaxBlockSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_size is ", pool.block_size, "; it must be 1 to ", kMaxBlockSize));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const uint64_t length = uint64_t{requests[i].prompt_tokens} + requests[i].output_tokens;
    if (length < 1 || length > pool.max_model_len) {
      return absl::InvalidArgumentError(absl::StrCat("length ", i + 1, " is ", length,
                                                     "; it must be 1 to max_model_len, ",
                                                     pool.max_model_len));
    }
  }
  return absl::OkStatus();
}

PolicyRow Admit(KvPolicy policy, const std::vector<RequestLength>& requests,
                const PolicyPool& pool) {
  PolicyRow row{.policy = policy};
  const KvLayout layout{.block_size = pool.block_size};
  const std::unique_ptr<ContiguousAllocator> allocator =
      policy == KvPolicy::kPaged ? nullptr
                                 : MakeContiguousAllocator(pool.allocator, pool.block_count);
  for (const RequestLength& request : requests) {
    const uint32_t reserved = layout.BlocksFor(
        ReservedTokens(policy, request.prompt_tokens, request.output_tokens, pool.max_model_len));
    uint32_t taken = reserved;
    if (allocator == nullptr) {
      if (reserved > pool.block_count - row.taken_blocks) break;
    } else {
      const std::optional<BlockRun> run = allocator->Allocate(reserved);
      if (!run) break;
      taken = run->count;
    }
    const uint64_t tokens = uint64_t{request.prompt_tokens} + request.output_tokens;
    ++row.admitted;
    row.taken_blocks += taken;
    row.used_blocks += layout.BlocksFor(tokens);
    row.tokens += tokens;
  }
  return row;
}

}  // namespace

absl::StatusOr<std::vector<PolicyRow>> ComparePolicies(const std::vector<RequestLength>& requests,
                                                       const PolicyPool& pool) {
  if (absl::Status status = Validate(requests, pool); !status.ok()) return status;
  std::vector<PolicyRow> rows;
  for (const KvPolicy policy : kKvPolicies) rows.push_back(Admit(policy, requests, pool));
  return rows;
}

}  // namespace octavo::cli
