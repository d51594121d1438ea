#pragma once

// The border: messages of clients in, values that cannot be wrong out. Every limit a client can
// meet is here. Errors are InvalidArgument with a BadRequest that names the field, its value and
// its limit, or NotFound for another model.
//
// Thread rule: pure functions; they run on gRPC's threads, tokenising included.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "octavo/v1/admin_service.pb.h"
#include "octavo/v1/generation_service.pb.h"
#include "scheduler/runtime/loop.h"
#include "scheduler/runtime/served_model.h"

namespace octavo {

constexpr size_t kMaxPromptBytes = 4 << 20;  // text of a prompt, or of all messages of a chat
constexpr int kMaxChatMessages = 1024;
constexpr size_t kMaxRoleBytes = 64;
constexpr size_t kMaxJsonBytes = 1 << 20;  // tools, tool calls and template variables, each
constexpr int kMaxJsonDepth = 64;
constexpr int kMaxClientStopStrings = 16;
constexpr size_t kMaxClientStopStringBytes = 256;
constexpr int kMaxStopTokenIds = 64;
constexpr int kMaxLogitBiasEntries = 1024;
constexpr size_t kMaxCacheSaltBytes = 256;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr int kMaxAbortIds = 1024;
constexpr int kMaxDetokenizeIds = 1 << 20;
constexpr uint32_t kMaxSamples = 64;
constexpr float kMaxLengthPenalty = 10;     // and its negative
constexpr size_t kMaxEchoTokens = 1 << 18;  // of the prompts echoed for several sequences, together

// What flags limit.
struct BorderLimits {
  int32_t min_priority = 0;
  int32_t max_priority = 100;
  uint32_t max_sequences = 256;  // running at once: samples or beams of one request too
};

// Everything of a submission but request id, sink and deadline. `drawn_seed` is used when the
// client gave none.
absl::StatusOr<Submission> ParseGenerate(const v1::GenerateRequest& request,
                                         const ServedModel& model, const BorderLimits& limits,
                                         uint64_t drawn_seed);

struct TokenizedPrompt {
  std::vector<TokenId> token_ids;
  std::string text;  // as given, or as the chat template rendered it
};
absl::StatusOr<TokenizedPrompt> ParseTokenize(const v1::TokenizeRequest& request,
                                              const ServedModel& model);

absl::StatusOr<std::vector<TokenId>> ParseDetokenize(const v1::DetokenizeRequest& request,
                                                     const ServedModel& model);

absl::StatusOr<std::vector<TokenId>> ParseLookup(const v1::LookupPrefixRequest& request,
                                                 const ServedModel& model);

absl::StatusOr<std::vector<std::string>> ParseAbort(const v1::AbortRequest& request);

// NotFound unless `name` is empty or the served model's.
absl::Status CheckModelName(const std::string& name, const ServedModel& model);

}  // namespace octavo
