#include "worker/device/cpu_sampler.h"

namespace octavo {

CpuSampler::CpuSampler(kernels::Isa isa, uint32_t slot_count, uint32_t vocab_size)
    : sample_(kernels::SamplerFor(isa)),
      slot_count_(slot_count),
      vocab_size_(vocab_size),
      slots_(std::make_unique<Slot[]>(slot_count)) {}

kernels::TokenHistory& CpuSampler::Slot::HistoryOf(TokenId token) {
  const auto [it, added] = history_index.try_emplace(token, static_cast<uint32_t>(history.size()));
  if (added) history.push_back({.token_id = token});
  return history[it->second];
}

void CpuSampler::Start(const SlotStart& start) {
  Slot& slot = slots_[start.slot];
  slot.seed = start.seed;
  slot.sampling = start.sampling;
  slot.biases.clear();
  for (const auto& [token, bias] : start.sampling.logit_bias) slot.biases.push_back({token, bias});
  slot.history.clear();
  slot.history_index.clear();
  if (start.sampling.needs_history()) {
    for (size_t i = 0; i < start.history.size(); ++i) {
      kernels::TokenHistory& entry = slot.HistoryOf(start.history[i]);
      ++(i < start.prompt_token_count ? entry.prompt_count : entry.output_count);
    }
  }
  slot.last_token = 0;
  slot.failed.store(false, std::memory_order_relaxed);
}

void CpuSampler::FillSampling(const LogitsRow& row, Slot& slot, kernels::SamplerRow& request) {
  const SamplingParams& sampling = slot.sampling;
  request.temperature = sampling.temperature;
  request.top_k = sampling.top_k;
  request.top_p = sampling.top_p;
  request.min_p = sampling.min_p;
  request.repetition_penalty = sampling.repetition_penalty;
  request.presence_penalty = sampling.presence_penalty;
  request.frequency_penalty = sampling.frequency_penalty;
  request.biases = slot.biases.data();
  request.bias_count = static_cast<int64_t>(slot.biases.size());
  request.history = slot.history.data();
  request.history_count = static_cast<int64_t>(slot.history.size());
  if (!row.stop_allowed) {
    request.masked_tokens = sampling.stop_token_ids.data();
    request.masked_count = static_cast<int64_t>(sampling.stop_token_ids.size());
  }
  slot.saved.resize(slot.biases.size() + slot.history.size() + sampling.stop_token_ids.size());
  request.saved = slot.saved.data();
}

void CpuSampler::Choose(const LogitsRow& row, float* logits, LogitsOutcome& outcome) {
  Slot& slot = slots_[row.slot];
  kernels::SamplerRow request{.logits = logits,
                              .wants_logprobs = row.wants_logprob,
                              .top_count = static_cast<int32_t>(row.top_count),
                              .seed = slot.seed,
                              .position = row.position};
  if (row.samples) {
    FillSampling(row, slot, request);
  } else {
    // Nothing else of the slot may be read: the row that samples may be changing it at the same
    // time.
    request.mode = kernels::SamplerMode::kScore;
    request.scored_token = row.target;
  }
  kernels::SamplerResult result;
  sample_({.rows = &request, .results = &result, .row_count = 1, .vocab_size = vocab_size_},
          {0, 1});
  outcome = {};
  if (result.status != kernels::SamplerStatus::kOk)
    slot.failed.store(true, std::memory_order_relaxed);
  if (slot.failed.load(std::memory_order_relaxed)) {
    outcome.finite = false;
    return;
  }
  outcome.token_id = result.token_id;
  outcome.logprob = result.logprob;
  for (int32_t i = 0; i < result.top_count; ++i) {
    outcome.top.push_back({result.top_tokens[i], result.top_logprobs[i]});
  }
  if (!row.samples) return;
  slot.last_token = result.token_id;
  if (slot.sampling.needs_history()) ++slot.HistoryOf(result.token_id).output_count;
}

}  // namespace octavo
