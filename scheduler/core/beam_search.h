#pragma once

// Beam search, the rule alone: what the beams' most likely next tokens are comes in, which beams go
// on comes out. No blocks, no sequences, no worker.
//
// The rules are Hugging Face's (transformers, `_beam_search` of generation/utils.py since 4.50:
// generate(num_beams=w, do_sample=False)):
//  - A beam's sum is that of its tokens' log-probabilities. The candidates of a step are the
//    continuations of all beams, in the order of their sums: 2w, or (1 + s)w with s > 1 stop
//    tokens, so that w of them always go on.
//  - A candidate ends if its token is a stop token, or if it is the max_tokens-th. One that ends
//    becomes a hypothesis if it is among the first w, and is dropped otherwise. The first w of the
//    others are the beams of the next step.
//  - A hypothesis scores sum / length^length_penalty, its length being that of its output, stop
//    token included. The best w are kept.
//  - It is done when there are w hypotheses and early_stopping is kAlways; or no running beam could
//    beat the worst of them: the best one's sum, over its length now (kHeuristic), or over the
//    length it would have at max_tokens if length_penalty > 0 (kNever), is not above it.
// Where those rules leave it open: candidates of one sum are ordered by parent, then by token id;
// of hypotheses with one score the older is the better. Sums are doubles: the worker's floats are
// added in the order of the tokens.
//
// Of each beam w + s alternatives are enough: w of them are no stop token, and what comes after has
// w before it. So nobody counts candidates here. (With more stop tokens than a worker can be asked
// for a step may leave fewer than w beams, as it may where the vocabulary is smaller.)
//
// Thread-compatible. Deterministic.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/beam_search_params.h"
#include "common/ids.h"
#include "common/step_result.h"
#include "scheduler/core/stop_condition.h"

namespace octavo {

struct BeamHypothesis {
  std::vector<TokenId> tokens;  // output, stop token included
  double score = 0;
  std::optional<TokenId> stop_token;  // absent: it was ended by max_tokens, or by Stop

  friend bool operator==(const BeamHypothesis&, const BeamHypothesis&) = default;
};

// A beam that goes on: `token` after the beam that was at `parent`.
struct BeamContinuation {
  uint32_t parent = 0;
  TokenId token = 0;

  friend bool operator==(const BeamContinuation&, const BeamContinuation&) = default;
};

class BeamSearch {
 public:
  // Begins with one beam without output. `stop.min_tokens` is not looked at.
  BeamSearch(const BeamSearchParams& params, StopRule stop);

  // Alternatives of each beam's next token that Advance must be given, or the whole vocabulary.
  uint32_t alternative_count() const;
  uint32_t beam_count() const { return static_cast<uint32_t>(beams_.size()); }
  // Output tokens of each beam.
  uint32_t token_count() const { return token_count_; }
  bool done() const { return done_; }

  // One step. alternatives: [beam_count()], of each beam, most likely first. Returns the beams of
  // the next step, best first; none if the search is done. REQUIRES: !done().
  std::vector<BeamContinuation> Advance(std::span<const std::vector<TokenLogprob>> alternatives);
  // Ends it early: the running beams become hypotheses as they are, if they have tokens.
  void Stop();
  // The best `returned` hypotheses, best first, or all where there are fewer. REQUIRES: done().
  std::vector<BeamHypothesis> Best() const;

 private:
  struct Beam {
    std::vector<TokenId> tokens;
    double sum = 0;
  };
  struct Candidate {
    double sum;
    uint32_t parent;
    TokenId token;
  };

  bool IsStop(TokenId token) const;
  double Score(double sum, uint32_t length) const;
  void Keep(BeamHypothesis hypothesis);
  bool CanImprove() const;
  std::vector<Candidate> Candidates(std::span<const std::vector<TokenLogprob>> alternatives) const;

  const BeamSearchParams params_;
  const StopRule stop_;
  std::vector<Beam> beams_;                 // best first
  std::vector<BeamHypothesis> hypotheses_;  // best first, at most w
  uint32_t token_count_ = 0;
  bool done_ = false;
};

}  // namespace octavo
