#include "scheduler/rpc/sequences.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/beam_search_params.h"
#include "common/sampling_params.h"
#include "common/status.h"
#include "common/wire/errors.h"

namespace octavo {
namespace {

using wire::InvalidField;

// 1 to the smaller of `most` and what the scheduler runs at once.
absl::Status CheckCount(absl::string_view field, uint32_t value, uint32_t most,
                        uint32_t max_sequences) {
  if (value >= 1 && value <= std::min(most, max_sequences)) return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat(field, " is ", value, "; it must be 1 to ", std::min(most, max_sequences),
                          max_sequences < most ? " (--max_sequences)" : ""));
}

absl::Status OnlyWithBeams(absl::string_view field) {
  return InvalidField(field,
                      absl::StrCat(field,
                                   " has no meaning without a beam search; leave it out, or set "
                                   "beam_width to 2 or more"));
}

// A field whose value `has_effect` on how tokens are chosen, or asks for what a beam search lacks.
absl::Status CheckNoEffect(absl::string_view field, bool has_effect) {
  if (!has_effect) return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat(field, " has no meaning in a beam search; leave it out, or beam_width"));
}

absl::Status CheckFieldsBesideBeams(const v1::GenerateRequest& request) {
  const v1::SamplingParams& sampling = request.sampling();
  const SamplingParams off;
  const auto check = CheckNoEffect;
  OCTAVO_RETURN_IF_ERROR(check("sampling.temperature", sampling.temperature() != 0));
  OCTAVO_RETURN_IF_ERROR(check("sampling.top_k", sampling.top_k() != off.top_k));
  OCTAVO_RETURN_IF_ERROR(
      check("sampling.top_p", sampling.has_top_p() && sampling.top_p() != off.top_p));
  OCTAVO_RETURN_IF_ERROR(check("sampling.min_p", sampling.min_p() != off.min_p));
  OCTAVO_RETURN_IF_ERROR(check("sampling.repetition_penalty",
                               sampling.has_repetition_penalty() &&
                                   sampling.repetition_penalty() != off.repetition_penalty));
  OCTAVO_RETURN_IF_ERROR(
      check("sampling.presence_penalty", sampling.presence_penalty() != off.presence_penalty));
  OCTAVO_RETURN_IF_ERROR(
      check("sampling.frequency_penalty", sampling.frequency_penalty() != off.frequency_penalty));
  OCTAVO_RETURN_IF_ERROR(check("sampling.logit_bias", !sampling.logit_bias().empty()));
  OCTAVO_RETURN_IF_ERROR(check("sampling.seed", sampling.has_seed()));
  OCTAVO_RETURN_IF_ERROR(check("sampling.min_tokens", sampling.min_tokens() != 0));
  OCTAVO_RETURN_IF_ERROR(check("sampling.logprobs", sampling.has_logprobs()));
  return check("stop", request.stop_size() > 0);
}

absl::Status CheckLengthPenalty(float value) {
  if (std::isfinite(value) && std::abs(value) <= kMaxLengthPenalty) return absl::OkStatus();
  return InvalidField("length_penalty",
                      absl::StrCat("length_penalty is ", value, "; it must be ", -kMaxLengthPenalty,
                                   " to ", kMaxLengthPenalty));
}

absl::StatusOr<EarlyStopping> ParseEarlyStopping(v1::EarlyStopping value) {
  switch (value) {
    case v1::EARLY_STOPPING_UNSPECIFIED:
    case v1::EARLY_STOPPING_HEURISTIC:
      return EarlyStopping::kHeuristic;
    case v1::EARLY_STOPPING_ALWAYS:
      return EarlyStopping::kAlways;
    case v1::EARLY_STOPPING_NEVER:
      return EarlyStopping::kNever;
    default:
      return InvalidField("early_stopping",
                          absl::StrCat("early_stopping is ", static_cast<int>(value),
                                       "; it must be one of the values of EarlyStopping, 0 to ",
                                       static_cast<int>(v1::EarlyStopping_MAX)));
  }
}

}  // namespace

absl::StatusOr<RequestedSequences> ParseSequences(const v1::GenerateRequest& request,
                                                  const BorderLimits& limits) {
  const uint32_t n = request.has_n() ? request.n() : 1;
  const uint32_t width = request.has_beam_width() ? request.beam_width() : 1;
  OCTAVO_RETURN_IF_ERROR(CheckCount("n", n, kMaxSamples, limits.max_sequences));
  OCTAVO_RETURN_IF_ERROR(CheckCount("beam_width", width, kMaxBeamWidth, limits.max_sequences));
  OCTAVO_ASSIGN_OR_RETURN(const EarlyStopping early_stopping,
                          ParseEarlyStopping(request.early_stopping()));
  if (width == 1) {
    if (request.has_length_penalty()) return OnlyWithBeams("length_penalty");
    if (request.early_stopping() != v1::EARLY_STOPPING_UNSPECIFIED)
      return OnlyWithBeams("early_stopping");
    return RequestedSequences{.returned = n};
  }
  if (n > width) {
    return InvalidField("n", absl::StrCat("n is ", n, "; it must be at most beam_width, ", width));
  }
  BeamSearchParams beams{.width = width, .returned = n, .early_stopping = early_stopping};
  if (request.has_length_penalty()) beams.length_penalty = request.length_penalty();
  OCTAVO_RETURN_IF_ERROR(CheckLengthPenalty(beams.length_penalty));
  OCTAVO_RETURN_IF_ERROR(CheckFieldsBesideBeams(request));
  return RequestedSequences{.returned = n, .beams = beams};
}

}  // namespace octavo
