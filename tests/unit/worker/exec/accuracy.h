#pragma once

// How far log-probabilities lie from the float32 reference's, over the tokens that the reference
// holds likeliest.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <vector>

#include "common/step_result.h"

namespace octavo {

class Accuracy {
 public:
  // One position: what we report (most likely first), and the reference's likeliest tokens with
  // their log-probabilities.
  void Add(const std::vector<TokenLogprob>& ours, const std::vector<TokenLogprob>& reference) {
    ++positions_;
    for (const TokenLogprob& expected : reference) {
      const auto found = std::find_if(ours.begin(), ours.end(), [&](const TokenLogprob& t) {
        return t.token_id == expected.token_id;
      });
      // A likely token that is not even among ours is as wrong as can be.
      differences_.push_back(
          found == ours.end() ? 1e9 : std::abs(double{found->logprob} - expected.logprob));
    }
    const bool same = ours[0].token_id == reference[0].token_id;
    same_top_ += same ? 1 : 0;
    if (!same)
      largest_lost_margin_ =
          std::max(largest_lost_margin_, double{reference[0].logprob} - reference[1].logprob);
  }
  // The token that really followed.
  void AddNext(float ours, float reference) {
    ++next_count_;
    our_sum_ += ours;
    reference_sum_ += reference;
  }

  double Quantile(double q) const {
    std::vector<double> sorted = differences_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1,
                           static_cast<size_t>(q * static_cast<double>(sorted.size())))];
  }
  double Max() const { return Quantile(1); }
  double same_top_share() const {
    return static_cast<double>(same_top_) / static_cast<double>(positions_);
  }
  // Between the reference's best two tokens, where its best was not ours. 0: it always was.
  double largest_lost_margin() const { return largest_lost_margin_; }
  double perplexity() const { return std::exp(-our_sum_ / static_cast<double>(next_count_)); }
  double reference_perplexity() const {
    return std::exp(-reference_sum_ / static_cast<double>(next_count_));
  }
  size_t positions() const { return positions_; }

  friend std::ostream& operator<<(std::ostream& out, const Accuracy& a) {
    return out << a.positions_ << " positions: median " << a.Quantile(.5) << ", p99 "
               << a.Quantile(.99) << ", max " << a.Max() << "; same top "
               << 100 * a.same_top_share() << " %, largest lost margin " << a.largest_lost_margin_
               << "; perplexity " << a.perplexity() << " against " << a.reference_perplexity();
  }

 private:
  std::vector<double> differences_;
  size_t positions_ = 0, same_top_ = 0, next_count_ = 0;
  double largest_lost_margin_ = 0;
  double our_sum_ = 0, reference_sum_ = 0;
};

}  // namespace octavo
