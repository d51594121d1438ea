// Whatever a client sends as a GenerateRequest: it is refused with a reason that a client can act
// on, or becomes a submission within every limit, tokens and chat template included.

#include <glog/logging.h>

#include <cmath>
#include <cstdint>

#include "common/model/utf8.h"
#include "common/wire/rpc_server.h"
#include "octavo/v1/generation_service.pb.h"
#include "scheduler/rpc/validation.h"
#include "tests/fuzz/served_model.h"

namespace octavo {
namespace {

constexpr BorderLimits kLimits = {.min_priority = -1, .max_priority = 10};

void CheckSubmission(const Submission& submission) {
  const SubmitRequest& request = submission.request;
  CHECK(!request.prompt.empty());
  CHECK_LT(request.prompt.size(), kContextLength);
  CHECK_EQ(submission.session.prompt_token_count, request.prompt.size());
  for (const TokenId id : request.prompt) CHECK(id >= 0 && id <= kLastToken) << id;
  if (request.max_tokens)
    CHECK(*request.max_tokens >= 1 &&
          request.prompt.size() + *request.max_tokens <= kContextLength);
  CHECK(request.priority >= kLimits.min_priority && request.priority <= kLimits.max_priority);
  const SamplingParams& sampling = request.sampling;
  CHECK(sampling.temperature >= 0 && sampling.temperature <= 100);
  CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  CHECK(sampling.min_p >= 0 && sampling.min_p <= 1);
  CHECK(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= 10);
  CHECK(!sampling.logprobs || *sampling.logprobs <= kMaxTopLogprobs);
  for (const auto& [id, bias] : sampling.logit_bias)
    CHECK(id >= 0 && id <= kLastToken && bias >= -100 && bias <= 100);
  const uint32_t count = submission.session.sequence_count;
  CHECK(count >= 1 && count <= kMaxSamples);
  if (request.beams) {
    CHECK(request.beams->width >= 2 && request.beams->width <= kMaxBeamWidth);
    CHECK_LE(request.beams->returned, request.beams->width);
    CHECK_EQ(request.beams->returned, count);
    CHECK_LE(std::abs(request.beams->length_penalty), kMaxLengthPenalty);
    CHECK(submission.session.stop.empty() && !sampling.logprobs);
  } else {
    CHECK_EQ(request.sample_count, count);
  }
  if (submission.session.echo && count > 1) CHECK_LE(count * request.prompt.size(), kMaxEchoTokens);
  CHECK(!FindInvalidUtf8(submission.session.prompt_text));
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  static const ServedModel* const kModel = [] {
    wire::SilenceParser();
    return new ServedModel(MakeServedModel());
  }();
  v1::GenerateRequest request;
  if (!request.ParseFromArray(bytes, static_cast<int>(size))) return 0;
  const absl::StatusOr<Submission> submission =
      ParseGenerate(request, *kModel, kLimits, /*drawn_seed=*/7);
  if (submission.ok()) {
    CheckSubmission(*submission);
  } else {
    CHECK(absl::IsInvalidArgument(submission.status()) || absl::IsNotFound(submission.status()))
        << submission.status();
    CHECK(!submission.status().message().empty());
  }
  return 0;
}
