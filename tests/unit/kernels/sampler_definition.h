#pragma once

// The sampler as kernels/sampler.h defines it, with nothing clever about it: whole sorts, whole
// sums. What the kernels choose is compared with what this chooses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "common/random.h"
#include "kernels/math.h"
#include "kernels/sampler.h"

namespace octavo::kernels {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Whole distributions: logits, and lists that change them, with parameters drawn at random.
struct Question {
  std::vector<float> logits;
  std::vector<TokenBias> biases;
  std::vector<TokenHistory> history;
  std::vector<int32_t> masked;
  std::vector<float> saved;
  SamplerRow row;

  const SamplerRow& Row() {
    saved.assign(biases.size() + history.size() + masked.size(), 0);
    row.logits = logits.data();
    row.biases = biases.data();
    row.bias_count = static_cast<int64_t>(biases.size());
    row.history = history.data();
    row.history_count = static_cast<int64_t>(history.size());
    row.masked_tokens = masked.data();
    row.masked_count = static_cast<int64_t>(masked.size());
    row.saved = saved.data();
    return row;
  }
};

class Definition {
 public:
  explicit Definition(const Question& question) : z_(question.logits), row_(question.row) {
    for (const TokenBias& bias : question.biases) At(bias.token_id) += bias.bias;
    for (const TokenHistory& seen : question.history) {
      if (seen.output_count + seen.prompt_count == 0) continue;
      float& z = At(seen.token_id);
      if (row_.repetition_penalty != 1.0f) {
        z = z > 0 ? z / row_.repetition_penalty : z * row_.repetition_penalty;
      }
      if (seen.output_count == 0) continue;
      z = std::fma(-static_cast<float>(seen.output_count), row_.frequency_penalty, z);
      z -= row_.presence_penalty;
    }
    for (const int32_t token : question.masked) At(token) = -kInfinity;
    ranking_.resize(z_.size());
    std::iota(ranking_.begin(), ranking_.end(), 0);
    std::stable_sort(ranking_.begin(), ranking_.end(),
                     [&](int32_t a, int32_t b) { return At(a) > At(b); });
  }

  // Tokens that may be drawn, with their weights; the others weigh 0.
  std::vector<float> Weights() {
    std::vector<float> weights(z_.size());
    const float best = At(ranking_[0]);
    for (size_t i = 0; i < z_.size(); ++i) {
      weights[i] = Exp((z_[i] - best) / row_.temperature);
    }
    if (row_.top_k > 0 && row_.top_k < z_.size()) Drop(row_.top_k, &weights);
    if (row_.top_p < 1.0f) {
      const float target = row_.top_p * TiledSum(weights);
      // The tiled sum rises with the prefix, so the first one that is long enough can be bisected.
      size_t low = 0;
      size_t high = z_.size();
      while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        std::vector<float> prefix = weights;
        Drop(middle, &prefix);
        (TiledSum(prefix) >= target ? high : low) = middle;
      }
      Drop(high, &weights);
    }
    for (float& weight : weights) {
      if (weight < row_.min_p) weight = 0;
    }
    return weights;
  }

  int32_t Choose() { return ChooseAt(row_.position); }
  int32_t ChooseAt(uint64_t position) {
    if (row_.temperature < kGreedyTemperature) return ranking_[0];
    if (weights_.empty()) weights_ = Weights();
    const std::vector<float>& weights = weights_;
    const float target = RandomUniform(row_.seed, position, row_.draw) * TiledSum(weights);
    float before = 0;
    size_t tile = 0;
    for (size_t i = 0; i < weights.size(); i += 1024) {
      const float sum = TileSum(weights, i);
      if (sum == 0) continue;
      tile = i;
      if (before + sum > target) break;
      bool is_last = true;
      for (size_t j = i + 1024; j < weights.size(); j += 1024) {
        is_last = is_last && TileSum(weights, j) == 0;
      }
      if (is_last) break;
      before += sum;
    }
    int32_t token = 0;
    for (size_t i = tile; i < std::min(tile + 1024, weights.size()); ++i) {
      if (weights[i] == 0) continue;
      token = static_cast<int32_t>(i);
      before += weights[i];
      if (before > target) break;
    }
    return token;
  }

  static float TileSum(const std::vector<float>& weights, size_t begin) {
    std::vector<float> tile(1024);
    std::copy(weights.begin() + static_cast<int64_t>(begin),
              weights.begin() + static_cast<int64_t>(std::min(begin + 1024, weights.size())),
              tile.begin());
    for (size_t half = 512; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) tile[i] += tile[i + half];
    }
    return tile[0];
  }
  static float TiledSum(const std::vector<float>& weights) {
    float sum = 0;
    for (size_t i = 0; i < weights.size(); i += 1024) sum += TileSum(weights, i);
    return sum;
  }

 private:
  float& At(int32_t token) { return z_[static_cast<size_t>(token)]; }
  void Drop(size_t kept, std::vector<float>* weights) {
    for (size_t i = kept; i < ranking_.size(); ++i)
      (*weights)[static_cast<size_t>(ranking_[i])] = 0;
  }

  std::vector<float> z_;
  SamplerRow row_;
  std::vector<int32_t> ranking_;
  std::vector<float> weights_;
};

}  // namespace octavo::kernels
