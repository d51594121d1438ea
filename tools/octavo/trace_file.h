#pragma once

// Recorded workloads: the lengths of requests, in order. Text files, gzip or not: CSV with a header
// that names input_tokens and output_tokens (Azure, ShareGPT and vLLM logs in this form), or JSON
// lines with input_length and output_length (Mooncake). Other columns are skipped. Mooncake's also
// say which prompts begin alike, by the ids of their blocks.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::cli {

struct RequestLength {
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;

  friend bool operator==(const RequestLength&, const RequestLength&) = default;
};

// A prompt as blocks of kTraceBlockTokens, the last of which may be part-filled. Equal ids: the
// prompts are equal up to the end of that block.
constexpr uint32_t kTraceBlockTokens = 512;
struct RequestPrefix {
  uint32_t prompt_tokens = 0;       // at least 1
  std::vector<uint32_t> block_ids;  // [ceil(prompt_tokens / kTraceBlockTokens)], each <= INT32_MAX

  friend bool operator==(const RequestPrefix&, const RequestPrefix&) = default;
};

// InvalidArgument naming the line and what is wrong with it.
absl::StatusOr<std::vector<RequestLength>> ParseTrace(absl::string_view text);
// JSON lines only: input_length and hash_ids.
absl::StatusOr<std::vector<RequestPrefix>> ParsePrefixTrace(absl::string_view text);

// The same from a file; NotFound where it cannot be read.
absl::StatusOr<std::vector<RequestLength>> ReadTraceFile(const std::string& path);
absl::StatusOr<std::vector<RequestPrefix>> ReadPrefixTraceFile(const std::string& path);

}  // namespace octavo::cli
