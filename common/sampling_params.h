#pragma once

// How the next token of a sequence is chosen. A value; validated once, at the border
// (scheduler/rpc). Order of application: logit bias, penalties, min_tokens, temperature, top_k,
// top_p, min_p.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace octavo {

constexpr uint32_t kMaxTopLogprobs = 20;       // that a client may ask for
constexpr uint32_t kMaxStepTopLogprobs = 128;  // that a plan may: a beam search asks for as many as
                                               // it has beams and stop tokens

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy: the highest logit, lowest token id on a tie
  uint32_t top_k = 0;               // 0 = off
  float top_p = 1.0f;               // (0, 1]; 1 = off
  float min_p = 0.0f;               // [0, 1]; 0 = off; relative to the most likely token
  float repetition_penalty = 1.0f;  // > 0; over prompt and output tokens (CTRL, arXiv 1909.05858)
  float presence_penalty = 0.0f;    // [-2, 2]; over output tokens
  float frequency_penalty = 0.0f;   // [-2, 2]; over output tokens
  std::vector<std::pair<TokenId, float>> logit_bias;  // by token id, each id once
  uint32_t min_tokens = 0;  // no stop token before this many output tokens
  std::vector<TokenId>
      stop_token_ids;  // includes the model's end tokens unless ignore_eos was asked for
  std::optional<uint32_t>
      logprobs;  // top alternatives a token, 0 to kMaxStepTopLogprobs, of the raw logits

  // Penalties look at earlier tokens, so the worker needs the sequence's history.
  bool needs_history() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

}  // namespace octavo
