#pragma once

// From logits to a token: the exact definition, the same bits on every machine. V = vocab_size.
//
// 0. The raw row l. If any logit is NaN or infinite, the status is kNonFinite and nothing else is
//    defined.
// 1. Log-probabilities (if wanted), of the raw logits: M = the largest, S = tiled sum of
//    exp(l[i] - M), logprob(i) = (l[i] - M) - log(S). The `top_count` largest logits, ties by lower
//    id, are reported most likely first.
// 2. Processed logits z, fp32, in this order:
//      bias         z[t] = l[t] + bias
//      repetition   tokens of the prompt or the output (CTRL, arXiv 1909.05858):
//                   z > 0 ? z / penalty : z * penalty
//      frequency    tokens of the output: z = fma(-count, penalty, z)
//      presence     tokens of the output: z = z - penalty
//      min_tokens   masked tokens: z = -inf
//    Z = the largest z. It must be finite, and no z NaN, else kNonFinite: every token is masked, or
//    a sum overflowed.
// 3. temperature < 1e-5, above all 0: the token with the largest z, ties by lower id. Done.
// 4. Weights w[i] = exp((z[i] - Z) / temperature); the best token weighs 1. Tokens rank by z, ties
//    by lower id.
//      top_k        the first top_k of the ranking stay (0: all)
//      top_p        T = tiled sum of the weights that stay. The shortest prefix of the ranking
//                   whose tiled sum is >= top_p * T stays (1: all). A tiled sum never falls when a
//                   weight joins it, so that prefix is well defined.
//      min_p        tokens with w >= min_p stay
// 5. The draw: u = RandomUniform(seed, position, draw) of common/random.h, target = u * (tiled sum
//    of the weights that stay). Tiles in order, c = running sum of tile sums: the first tile with
//    c > target holds the token, or, if none, the last tile of positive sum. In it, from the
//    running sum before it, weights are added one by one in order of id: the first token with sum >
//    target; if rounding leaves none, the tile's last token of positive weight.
// The tiled sum over V values, tokens that do not stay counting as +0: tiles of 1,024 in order of
// id, the last padded with +0; in a tile the halving tree x[i] = x[i] + x[i + half] for half = 512,
// 256, ... 1; the tiles' sums added from the left.
//
// exp and log are those of kernels/math.h; every other operation is one IEEE fp32 operation.

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

inline constexpr int64_t kSamplerTile = 1024;
inline constexpr int32_t kMaxTopCount = 128;        // of common/sampling_params.h the largest
inline constexpr float kGreedyTemperature = 1e-5f;  // below it the choice is greedy

struct TokenBias {
  int32_t token_id = 0;
  float bias = 0;
};

// What a sequence has seen of one token.
struct TokenHistory {
  int32_t token_id = 0;
  uint32_t output_count = 0;  // times in the output
  uint32_t prompt_count = 0;  // times in the prompt
};

enum class SamplerMode : uint8_t {
  kSample,  // steps 0 to 5
  kScore,   // steps 0 and 1 for the given token: log-probabilities of a known text
};

// One row and how to choose from it.
struct SamplerRow {
  float* logits = nullptr;  // [vocab_size]; holds z meanwhile, unchanged when the op returns
  SamplerMode mode = SamplerMode::kSample;
  int32_t scored_token = 0;  // kScore
  bool wants_logprobs = false;
  int32_t top_count = 0;  // 0 to kMaxTopCount; needs wants_logprobs

  float temperature = 1.0f;
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  const TokenBias* biases = nullptr;  // [bias_count], each token once
  int64_t bias_count = 0;
  const TokenHistory* history = nullptr;  // [history_count], each token once, any order
  int64_t history_count = 0;
  const int32_t* masked_tokens = nullptr;  // [masked_count] stop tokens until min_tokens are out
  int64_t masked_count = 0;
  float* saved = nullptr;  // scratch [bias_count + history_count + masked_count], for the logits
                           // that these lists change

  uint64_t seed = 0;
  uint64_t position = 0;  // absolute position of the token to be chosen
  uint32_t draw = 0;
};

enum class SamplerStatus : uint8_t {
  kOk,
  kNonFinite,  // the row ends its sequence; the other rows go on
};

struct SamplerResult {
  SamplerStatus status = SamplerStatus::kOk;
  int32_t token_id = 0;   // chosen or scored
  float logprob = 0;      // of token_id, if wanted
  int32_t top_count = 0;  // min(the row's top_count, vocab_size)
  int32_t top_tokens[kMaxTopCount] = {};
  float top_logprobs[kMaxTopCount] = {};

  friend bool operator==(const SamplerResult&, const SamplerResult&) = default;
};

struct SamplerArgs {
  const SamplerRow* rows = nullptr;  // [row_count]
  SamplerResult* results = nullptr;  // [row_count]
  int64_t row_count = 0;
  int64_t vocab_size = 0;  // >= 1
};

// Work items are rows. Sums keep one tile on the stack, and the search for a cut at most 4,096
// tokens.
inline int64_t SamplerWorkCount(const SamplerArgs& args) { return args.row_count; }
OpFunction<SamplerArgs> SamplerFor(Isa isa);

}  // namespace octavo::kernels
