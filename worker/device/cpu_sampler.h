#pragma once

// Sequence slots of the CPU backend: what choosing a token needs to remember between steps, and the
// choice itself, one logits row a work item. Penalties count the tokens of prompt and output; a
// sampled token joins its slot's history as it is chosen, so the next step may be recorded before
// this one ran.
//
// Thread rule: Start and Choose run inside commands. At most one row of a slot samples in a step;
// other rows of it only score.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/sampler.h"
#include "worker/device/step.h"

namespace octavo {

class CpuSampler {
 public:
  CpuSampler(kernels::Isa isa, uint32_t slot_count, uint32_t vocab_size);

  uint32_t slot_count() const { return slot_count_; }
  void Start(const SlotStart& start);
  // The token sampled last; 0 before the first.
  TokenId last_token(uint32_t slot) const { return slots_[slot].last_token; }

  // Chooses or scores for `row`. logits: [vocab_size], unchanged when it returns.
  void Choose(const LogitsRow& row, float* logits, LogitsOutcome& outcome);

 private:
  struct Slot {
    uint64_t seed = 0;
    SamplingParams sampling;
    std::vector<kernels::TokenBias> biases;
    std::vector<kernels::TokenHistory> history;            // each token once
    absl::flat_hash_map<TokenId, uint32_t> history_index;  // into history
    std::vector<float> saved;                              // scratch of the row that samples
    TokenId last_token = 0;
    std::atomic<bool> failed{false};

    kernels::TokenHistory& HistoryOf(TokenId token);
  };

  // The part of a request that only a sampling row has.
  static void FillSampling(const LogitsRow& row, Slot& slot, kernels::SamplerRow& request);

  kernels::OpFunction<kernels::SamplerArgs> sample_;
  uint32_t slot_count_;
  uint32_t vocab_size_;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace octavo
