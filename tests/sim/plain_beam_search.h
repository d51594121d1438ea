#pragma once

// Beam search as Hugging Face's `_beam_search` does it (transformers 4.50, generation/utils.py),
// step by step over whole vocabularies, without limits, caches or blocks: what the search of
// scheduler/core must equal. Written from their rules, not from ours.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "common/beam_search_params.h"
#include "common/ids.h"

namespace octavo {

struct PlainHypothesis {
  std::vector<TokenId> tokens;
  double score = 0;
  bool stopped = false;  // by a stop token
};

struct PlainBeamSearch {
  BeamSearchParams params;
  std::set<TokenId> stop_tokens;
  uint32_t max_tokens = 0;
  // Of every token after an output so far.
  std::function<std::vector<float>(std::span<const TokenId>)> logprobs;
  uint32_t stopped_after = UINT32_MAX;  // steps; then the running beams are taken as they are

  // The `returned` best, or all where there are fewer.
  std::vector<PlainHypothesis> Run() const {
    struct Candidate {
      std::vector<TokenId> tokens;
      double sum;
    };
    const auto score = [&](double sum, size_t length) {
      return sum / std::pow(static_cast<double>(length), double{params.length_penalty});
    };
    const auto by_sum = [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; };
    const auto by_score = [](const auto& a, const auto& b) { return a.score > b.score; };
    const size_t width = params.width;
    const size_t kept = std::max<size_t>(2, 1 + stop_tokens.size()) * width;
    std::vector<Candidate> running = {{{}, 0}};
    std::vector<PlainHypothesis> finished;
    const auto finish = [&](const Candidate& it, bool stopped) {
      finished.push_back({it.tokens, score(it.sum, it.tokens.size()), stopped});
    };
    for (uint32_t length = 1; length <= max_tokens; ++length) {
      if (length > stopped_after) {
        for (const Candidate& it : running) {
          if (!it.tokens.empty()) finish(it, false);
        }
        break;
      }
      std::vector<Candidate> top;  // by parent and token; a stable sort keeps that among equals
      for (const Candidate& parent : running) {
        const std::vector<float> next = logprobs(parent.tokens);
        for (size_t token = 0; token < next.size(); ++token) {
          top.push_back({parent.tokens, parent.sum + double{next[token]}});
          top.back().tokens.push_back(static_cast<TokenId>(token));
        }
      }
      std::stable_sort(top.begin(), top.end(), by_sum);
      if (top.size() > kept) top.resize(kept);
      running.clear();
      for (size_t rank = 0; rank < top.size(); ++rank) {
        const bool stopped = stop_tokens.contains(top[rank].tokens.back());
        const bool hits = stopped || length == max_tokens;
        if (hits && rank < width) finish(top[rank], stopped);
        if (!hits && running.size() < width) running.push_back(top[rank]);
      }
      std::stable_sort(finished.begin(), finished.end(), by_score);
      if (finished.size() > width) finished.resize(width);
      if (running.empty()) break;
      if (finished.size() < width) continue;
      if (params.early_stopping == EarlyStopping::kAlways) break;
      const bool hopeful =
          params.early_stopping == EarlyStopping::kNever && params.length_penalty > 0;
      if (score(running[0].sum, hopeful ? max_tokens : length) <= finished.back().score) break;
    }
    std::stable_sort(finished.begin(), finished.end(), by_score);
    if (finished.size() > params.returned) finished.resize(params.returned);
    return finished;
  }
};

}  // namespace octavo
