#pragma once

// Recorded workloads: the lengths of requests, in order. Text files, gzip or not: CSV with a header
// that names input_tokens and output_tokens (Azure, ShareGPT and vLLM logs in this form), or JSON
// lines with input_length and output_length (Mooncake). Other columns are skipped.

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

// InvalidArgument naming the line and what is wrong with it.
absl::StatusOr<std::vector<RequestLength>> ParseTrace(absl::string_view text);

// The same from a file; NotFound where it cannot be read.
absl::StatusOr<std::vector<RequestLength>> ReadTraceFile(const std::string& path);

}  // namespace octavo::cli
