#pragma once

// The layer loop of a decoder-only transformer, written once over Backend: embed, then per layer
// norm, projections, RoPE and cache write, attention, output projection, norm, gated FFN; at last
// norm and output matrix for the rows whose logits somebody wants. It orders ops and never reads a
// value. Llama: Touvron et al., arXiv 2302.13971 (RMSNorm before each half, SwiGLU, RoPE;
// grouped-query attention after Ainslie et al., arXiv 2305.13245).
//
// Thread rule: immutable; Record is called by whoever owns the step.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/model/model_config.h"
#include "worker/device/backend.h"
#include "worker/model/weights.h"

namespace octavo {

// Rows of logits that one product of the output matrix computes; more go chunk after chunk.
constexpr uint32_t kLogitsRowsPerChunk = 64;

class Decoder {
 public:
  // Creates its activations on `backend` (borrowed), each of `max_tokens` rows.
  Decoder(const ModelConfig& config, DecoderWeights weights, Backend& backend, uint32_t max_tokens);

  // Records the whole forward pass of `step` and the choice of its tokens. step.inputs must be
  // filled; group 0's pages lie in `pool`.
  void Record(Step& step, KvPoolId pool) const;

 private:
  void RecordLayer(Step& step, KvPoolId pool, LayerGroup group, uint32_t layer) const;
  void RecordLogits(Step& step) const;

  Backend& backend_;
  DecoderWeights weights_;
  HeadShape heads_;
  float epsilon_;
  ActivationId residual_;       // x, [max_tokens, width]
  ActivationId delta_;          // what the last half layer adds to x, [max_tokens, width]
  ActivationId attention_in_;   // normed x, read by the q, k, v products
  ActivationId qkv_;            // [max_tokens, query_width + 2 kv_width]
  ActivationId attention_out_;  // read by the output projection
  ActivationId ffn_in_;         // normed x, read by the gate and up products
  ActivationId gate_up_;        // [max_tokens, 2 ffn_width]
  ActivationId ffn_out_;        // read by the down product
  ActivationId output_in_;      // normed x of logits rows, [kLogitsRowsPerChunk, width]
  ActivationId logits_;         // [kLogitsRowsPerChunk, vocab_size]
};

}  // namespace octavo
