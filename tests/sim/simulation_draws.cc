// Simulation: what the seed draws, settings and requests.

#include <algorithm>
#include <bit>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/sim/simulation.h"

namespace octavo {

EngineOptions Simulation::DrawOptions() {
  EngineOptions options;
  options.vocab_size = vocabulary_;
  options.context_length = static_cast<uint32_t>(20 + Draw(80));
  options.max_sequences = static_cast<uint32_t>(1 + Draw(8));
  options.max_step_tokens = static_cast<uint32_t>(options.max_sequences + Draw(40));
  options.long_prefill_token_limit = static_cast<uint32_t>(Draw(3) == 0 ? 1 + Draw(20) : 0);
  options.max_steps_in_flight = Draw(4) == 0 ? 1 : 2;
  options.max_waiting_requests = 12;
  options.prefix_cache = Draw(5) != 0;
  options.prefix_match_unit = static_cast<uint32_t>(Draw(3) != 0 ? 1 : 1 + Draw(16));
  options.prefix_seed = random_();
  options.watermark_blocks = static_cast<uint32_t>(Draw(3));
  options.max_prefix_wait_steps =
      static_cast<uint32_t>(std::vector<uint32_t>{0, 1, 3, 128}[Draw(4)]);
  options.max_consecutive_resyncs = static_cast<uint32_t>(1 + Draw(3));
  if (Draw(6) == 0) {
    options.kv_policy = kKvPolicies[1 + Draw(std::size(kKvPolicies) - 1)];
    options.contiguous_allocator =
        Draw(2) == 0 ? ContiguousAllocatorKind::kBuddy : ContiguousAllocatorKind::kFirstFit;
    options.prefix_cache = false;
    // The longest run, rounded up to a power of two, fits: then nobody ends for want of blocks.
    options.context_length =
        std::min(options.context_length, std::bit_floor(block_count_) * layout_.block_size);
  }
  return options;
}

SubmitRequest Simulation::DrawRequest() {
  SubmitRequest request;
  request.request_id = RequestId(streams_.size() + 1);
  // Few documents, so that prefixes are shared; the rest of the prompt is the request's own, or
  // what an earlier one generated.
  const uint64_t document = Draw(3);
  const uint64_t shared = Draw(30);
  for (uint64_t i = 0; i < shared; ++i) {
    request.prompt.push_back(static_cast<TokenId>(Mix64(document * 1000 + i) % vocabulary_));
  }
  if (!streams_.empty() && Draw(3) == 0) {
    const Stream& earlier =
        std::next(streams_.begin(), static_cast<int64_t>(Draw(streams_.size())))->second;
    request.prompt = earlier.request.prompt;
    request.prompt.insert(request.prompt.end(), earlier.samples[0].output.begin(),
                          earlier.samples[0].output.end());
  }
  const uint64_t own = Draw(2) == 0 ? 1 + Draw(4) : 1 + Draw(30);
  for (uint64_t i = 0; i < own; ++i) {
    request.prompt.push_back(static_cast<TokenId>(Draw(vocabulary_)));
  }
  // A few are longer than the model, so that refusals happen too.
  if (Draw(20) != 0 && request.prompt.size() > options_.context_length / 2) {
    request.prompt.resize(options_.context_length / 2);
  }
  request.seed = random_();
  if (Draw(3) == 0) request.sample_count = static_cast<uint32_t>(1 + Draw(4));
  if (request.sample_count == 1 && Draw(5) == 0) {
    request.beams = BeamSearchParams{.width = static_cast<uint32_t>(2 + Draw(4))};
    request.beams->returned = static_cast<uint32_t>(1 + Draw(request.beams->width));
    request.beams->length_penalty = std::vector<float>{-1, 0, 1, 2}[Draw(4)];
    request.beams->early_stopping = static_cast<EarlyStopping>(Draw(3));
  }
  if (Draw(4) != 0) request.max_tokens = static_cast<uint32_t>(1 + Draw(25));
  if (Draw(2) == 0) {
    request.sampling.stop_token_ids = {static_cast<TokenId>(Draw(vocabulary_)),
                                       static_cast<TokenId>(Draw(vocabulary_))};
    request.sampling.min_tokens = static_cast<uint32_t>(Draw(4));
  }
  if (Draw(4) == 0) request.sampling.presence_penalty = 0.5f;
  if (Draw(4) == 0) request.sampling.logprobs = static_cast<uint32_t>(Draw(4));
  if (Draw(4) == 0) request.cache_salt = absl::StrCat("salt", Draw(2));
  request.priority = static_cast<int32_t>(Draw(3)) - 1;
  request.prompt_logprobs = Draw(6) == 0 && !request.beams;
  request.no_cache = Draw(8) == 0;
  if (faults_ && Draw(8) == 0) request.deadline = now_ + absl::Milliseconds(1 + Draw(200));
  if (Draw(3) == 0) request.client_request_id = absl::StrCat("client", request.request_id.value());
  return request;
}

}  // namespace octavo
