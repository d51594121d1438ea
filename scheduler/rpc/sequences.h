#pragma once

// How many sequences a request asks for: the part of the border (validation.h) that knows parallel
// samples and beam search, and which fields have no meaning in a beam search.
//
// Thread rule: pure functions.

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/beam_search_params.h"
#include "octavo/v1/generation_service.pb.h"
#include "scheduler/rpc/validation.h"

namespace octavo {

struct RequestedSequences {
  uint32_t returned = 1;                  // samples, or hypotheses in the answer
  std::optional<BeamSearchParams> beams;  // a beam search instead of samples

  friend bool operator==(const RequestedSequences&, const RequestedSequences&) = default;
};

// From n, beam_width, length_penalty and early_stopping. InvalidArgument naming the field, also for
// a field that this request cannot have: length_penalty and early_stopping without beams; with
// beams, whatever would choose tokens in another way (generation_service.proto lists it).
absl::StatusOr<RequestedSequences> ParseSequences(const v1::GenerateRequest& request,
                                                  const BorderLimits& limits);

}  // namespace octavo
