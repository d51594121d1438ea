#pragma once

// The requests of a recorded workload that a benchmark replays.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/octavo/trace_file.h"

namespace octavo {

// The first `count` of the trace that have a prompt and an answer and fit `max_model_len` tokens.
// `first_turns`: without those that go on from the one above them in the trace, whose prompt holds
// its prompt and answer.
inline std::vector<cli::RequestLength> SelectRequests(const std::vector<cli::RequestLength>& trace,
                                                      bool first_turns, uint32_t max_model_len,
                                                      size_t count) {
  std::vector<cli::RequestLength> requests;
  cli::RequestLength above;
  for (const cli::RequestLength& request : trace) {
    const bool continues =
        above.output_tokens > 0 &&
        request.prompt_tokens >= uint64_t{above.prompt_tokens} + above.output_tokens;
    above = request;
    const bool fits = request.prompt_tokens >= 1 && request.output_tokens >= 1 &&
                      uint64_t{request.prompt_tokens} + request.output_tokens <= max_model_len;
    if (fits && !(first_turns && continues) && requests.size() < count) requests.push_back(request);
  }
  return requests;
}

}  // namespace octavo
