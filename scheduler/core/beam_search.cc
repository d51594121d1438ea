#include "scheduler/core/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/sampling_params.h"
#include "glog/logging.h"

namespace octavo {

BeamSearch::BeamSearch(const BeamSearchParams& params, StopRule stop)
    : params_(params), stop_(std::move(stop)), beams_(1) {}

uint32_t BeamSearch::alternative_count() const {
  return std::min(params_.width + static_cast<uint32_t>(stop_.stop_token_ids.size()),
                  kMaxStepTopLogprobs);
}

bool BeamSearch::IsStop(TokenId token) const {
  return std::binary_search(stop_.stop_token_ids.begin(), stop_.stop_token_ids.end(), token);
}

double BeamSearch::Score(double sum, uint32_t length) const {
  return sum / std::pow(static_cast<double>(length), static_cast<double>(params_.length_penalty));
}

void BeamSearch::Keep(BeamHypothesis hypothesis) {
  const auto worse =
      std::find_if(hypotheses_.begin(), hypotheses_.end(),
                   [&](const BeamHypothesis& it) { return it.score < hypothesis.score; });
  hypotheses_.insert(worse, std::move(hypothesis));
  if (hypotheses_.size() > params_.width) hypotheses_.pop_back();
}

bool BeamSearch::CanImprove() const {
  if (beams_.empty()) return false;
  if (hypotheses_.size() < params_.width) return true;
  if (params_.early_stopping == EarlyStopping::kAlways) return false;
  const bool may_grow =
      params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  const double reachable = Score(beams_[0].sum, may_grow ? stop_.max_tokens : token_count_);
  return reachable > hypotheses_.back().score;
}

std::vector<BeamSearch::Candidate> BeamSearch::Candidates(
    std::span<const std::vector<TokenLogprob>> alternatives) const {
  std::vector<Candidate> candidates;
  for (uint32_t parent = 0; parent < alternatives.size(); ++parent) {
    for (const TokenLogprob& it : alternatives[parent]) {
      candidates.push_back(
          {beams_[parent].sum + static_cast<double>(it.logprob), parent, it.token_id});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  });
  return candidates;
}

std::vector<BeamContinuation> BeamSearch::Advance(
    std::span<const std::vector<TokenLogprob>> alternatives) {
  CHECK(!done_);
  CHECK_EQ(alternatives.size(), beams_.size());
  const std::vector<Candidate> candidates = Candidates(alternatives);
  const bool is_last = ++token_count_ == stop_.max_tokens;
  std::vector<Beam> beams;
  std::vector<BeamContinuation> continuations;
  for (uint32_t rank = 0; rank < candidates.size() && beams.size() < params_.width; ++rank) {
    const Candidate& it = candidates[rank];
    const bool stops = IsStop(it.token);
    if ((stops || is_last) && rank >= params_.width) continue;
    Beam beam{beams_[it.parent].tokens, it.sum};
    beam.tokens.push_back(it.token);
    if (stops || is_last) {
      Keep({.tokens = std::move(beam.tokens),
            .score = Score(it.sum, token_count_),
            .stop_token = stops ? std::optional(it.token) : std::nullopt});
    } else {
      beams.push_back(std::move(beam));
      continuations.push_back({it.parent, it.token});
    }
  }
  beams_ = std::move(beams);
  done_ = !CanImprove();
  if (done_) continuations.clear();
  return continuations;
}

void BeamSearch::Stop() {
  for (Beam& beam : beams_) {
    if (beam.tokens.empty()) continue;
    Keep({std::move(beam.tokens), Score(beam.sum, token_count_), std::nullopt});
  }
  beams_.clear();
  done_ = true;
}

std::vector<BeamHypothesis> BeamSearch::Best() const {
  CHECK(done_);
  const size_t count = std::min<size_t>(params_.returned, hypotheses_.size());
  return {hypotheses_.begin(), hypotheses_.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace octavo
