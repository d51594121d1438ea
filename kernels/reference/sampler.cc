#include "kernels/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "common/random.h"
#include "kernels/math.h"
#include "kernels/sampler_parts.h"

// The order of things is in the header; here is how to find them without sorting a vocabulary. A
// cut (the last kept token of the ranking) is found among few candidates: tokens above a bound that
// provably, or very likely, lie on both sides of it. Where there are too many, bisection over all
// possible cuts finds the same token with some 50 passes over the row.

namespace octavo::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kMaxCandidates = 4096;
constexpr int64_t kMaxStrips = 1024;

// Maps floats to integers in ascending order; zeros of both signs are one value.
uint32_t OrderedKey(float z) {
  const uint32_t bits = std::bit_cast<uint32_t>(z + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
float FromOrderedKey(uint32_t key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

class RowSampler {
 public:
  RowSampler(const SamplerParts& parts, const SamplerRow& row, int64_t vocab_size)
      : parts_(parts), row_(row), z_(row.logits), vocab_size_(vocab_size) {}

  SamplerResult Run();

 private:
  void ApplyEdits();
  void RevertEdits();
  void Edit(int32_t token_id, float z) {
    row_.saved[edit_count_++] = z_[token_id];
    z_[token_id] = z;
  }

  // Step 3 to 5. REQUIRES: z_ is final and its largest value, `best`, finite.
  int32_t Choose(float best);
  RankedToken TopKCut();
  RankedToken TopPCut(const WeightRule& rule);
  int32_t Draw(const WeightRule& rule);

  // The tiled sum of the weights under `rule`.
  float WeightSum(const WeightRule& rule);
  bool WeighTile(int64_t tile, const WeightRule& rule, float* weights) const {
    const int64_t first = tile * kSamplerTile;
    return parts_.weigh_tile(z_ + first, std::min(kSamplerTile, vocab_size_ - first),
                             static_cast<int32_t>(first), rule, weights);
  }
  int64_t tile_count() const { return (vocab_size_ + kSamplerTile - 1) / kSamplerTile; }

  // The `count` first tokens of the ranking, in order, in candidates_. False if that took too many
  // candidates.
  bool CollectTop(int64_t count);
  // The first cut, in order of rank, for which `enough` holds; it holds for every later one too.
  template <typename Enough>
  RankedToken Bisect(const Enough& enough) const;

  void ReportLogprobs(SamplerResult* result);

  const SamplerParts& parts_;
  const SamplerRow& row_;
  float* z_;
  const int64_t vocab_size_;
  float raw_max_ = 0;
  int64_t edit_count_ = 0;
  int64_t candidate_count_ = 0;
  RankedToken candidates_[kMaxCandidates];
};

SamplerResult RowSampler::Run() {
  SamplerResult result;
  const RowScan raw = parts_.scan(z_, vocab_size_);
  raw_max_ = raw.max;
  if (!raw.all_finite) {
    result.status = SamplerStatus::kNonFinite;
    return result;
  }
  if (row_.mode == SamplerMode::kScore) {
    result.token_id = row_.scored_token;
  } else {
    ApplyEdits();
    const RowScan scan = edit_count_ == 0 ? raw : parts_.scan(z_, vocab_size_);
    const bool can_choose = !scan.has_nan && std::isfinite(scan.max);
    if (can_choose) result.token_id = Choose(scan.max);
    RevertEdits();
    if (!can_choose) {
      result.status = SamplerStatus::kNonFinite;
      return result;
    }
  }
  if (row_.wants_logprobs) ReportLogprobs(&result);
  return result;
}

void RowSampler::ApplyEdits() {
  for (int64_t i = 0; i < row_.bias_count; ++i) {
    const TokenBias& bias = row_.biases[i];
    Edit(bias.token_id, z_[bias.token_id] + bias.bias);
  }
  const bool has_penalty = row_.repetition_penalty != 1.0f || row_.frequency_penalty != 0.0f ||
                           row_.presence_penalty != 0.0f;
  for (int64_t i = 0; has_penalty && i < row_.history_count; ++i) {
    const TokenHistory& seen = row_.history[i];
    if (seen.output_count == 0 && seen.prompt_count == 0) continue;
    float z = z_[seen.token_id];
    if (row_.repetition_penalty != 1.0f) {
      z = z > 0 ? z / row_.repetition_penalty : z * row_.repetition_penalty;
    }
    if (seen.output_count > 0) {
      z = Fma(-static_cast<float>(seen.output_count), row_.frequency_penalty, z);
      z = z - row_.presence_penalty;
    }
    Edit(seen.token_id, z);
  }
  for (int64_t i = 0; i < row_.masked_count; ++i) Edit(row_.masked_tokens[i], kMinusInfinity);
}

void RowSampler::RevertEdits() {
  // The lists again, backwards: a token may have been changed by each of them.
  for (int64_t i = row_.masked_count; i-- > 0;) {
    z_[row_.masked_tokens[i]] = row_.saved[--edit_count_];
  }
  for (int64_t i = row_.history_count; i-- > 0 && edit_count_ > row_.bias_count;) {
    const TokenHistory& seen = row_.history[i];
    if (seen.output_count == 0 && seen.prompt_count == 0) continue;
    z_[seen.token_id] = row_.saved[--edit_count_];
  }
  for (int64_t i = row_.bias_count; i-- > 0;) {
    z_[row_.biases[i].token_id] = row_.saved[--edit_count_];
  }
}

int32_t RowSampler::Choose(float best) {
  if (row_.temperature < kGreedyTemperature) {
    parts_.collect(z_, vocab_size_, best, candidates_, 1);
    return candidates_[0].token_id;
  }
  WeightRule rule{.best = best, .temperature = row_.temperature};
  if (row_.top_k > 0 && row_.top_k < vocab_size_) rule.cut = TopKCut();
  if (row_.top_p < 1.0f) rule.cut = TopPCut(rule);
  rule.min_weight = row_.min_p;
  return Draw(rule);
}

float RowSampler::WeightSum(const WeightRule& rule) {
  alignas(32) float weights[kSamplerTile];
  float sum = 0;
  for (int64_t tile = 0; tile < tile_count(); ++tile) {
    if (WeighTile(tile, rule, weights)) sum = sum + parts_.sum_tile(weights);
  }
  return sum;
}

bool RowSampler::CollectTop(int64_t count) {
  // Strips of the row, each with its largest value: of the `count` largest of those, the smallest
  // is a bound that at least `count` tokens reach, and seldom many more.
  const int64_t strip = (vocab_size_ + kMaxStrips * 8 - 1) / (kMaxStrips * 8) * 8;
  const int64_t strips = (vocab_size_ + strip - 1) / strip;
  float bound = kMinusInfinity;
  if (count <= strips) {
    float maxima[kMaxStrips];
    parts_.strip_maxima(z_, vocab_size_, strip, maxima);
    std::nth_element(maxima, maxima + count - 1, maxima + strips, std::greater<float>());
    bound = maxima[count - 1];
  }
  candidate_count_ = parts_.collect(z_, vocab_size_, bound, candidates_, kMaxCandidates);
  if (candidate_count_ > kMaxCandidates) return false;
  std::partial_sort(candidates_, candidates_ + count, candidates_ + candidate_count_, RanksBefore);
  return true;
}

template <typename Enough>
RankedToken RowSampler::Bisect(const Enough& enough) const {
  constexpr int32_t kAnyId = std::numeric_limits<int32_t>::max();
  uint32_t low = OrderedKey(kMinusInfinity);                           // enough
  uint32_t high = OrderedKey(std::numeric_limits<float>::infinity());  // not enough
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (enough(RankedToken{FromOrderedKey(middle), kAnyId})) {
      low = middle;
    } else {
      high = middle;
    }
  }
  RankedToken cut{FromOrderedKey(low), 0};
  int32_t first = 0;
  int32_t last = static_cast<int32_t>(vocab_size_) - 1;
  while (first < last) {
    const int32_t middle = first + (last - first) / 2;
    cut.token_id = middle;
    if (enough(cut)) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  cut.token_id = last;
  return cut;
}

RankedToken RowSampler::TopKCut() {
  const int64_t count = row_.top_k;
  if (CollectTop(count)) return candidates_[count - 1];
  return Bisect(
      [&](RankedToken cut) { return parts_.count_ranked(z_, vocab_size_, cut) >= count; });
}

RankedToken RowSampler::TopPCut(const WeightRule& rule) {
  const float sum = WeightSum(rule);
  const float target = row_.top_p * sum;
  WeightRule trial = rule;
  const auto enough = [&](RankedToken cut) {
    trial.cut = RanksBefore(rule.cut, cut) ? rule.cut : cut;
    return WeightSum(trial) >= target;
  };
  // Tokens lighter than (1 - top_p) * sum / V weigh less than (1 - top_p) * sum together, so the
  // cut lies among the heavier ones.
  const float lightest = (1.0f - row_.top_p) * sum / static_cast<float>(vocab_size_);
  const float bound = std::max(rule.cut.z, rule.best + rule.temperature * Log(lightest));
  candidate_count_ = parts_.collect(z_, vocab_size_, bound, candidates_, kMaxCandidates);
  if (candidate_count_ > kMaxCandidates) return Bisect(enough);
  std::sort(candidates_, candidates_ + candidate_count_, RanksBefore);
  // Candidates that tie with an earlier cut but rank after it weigh nothing.
  while (candidate_count_ > 0 && RanksBefore(rule.cut, candidates_[candidate_count_ - 1])) {
    --candidate_count_;
  }
  int64_t low = 0;  // a prefix of `low` candidates is not enough, one of `high` is
  int64_t high = candidate_count_;
  if (high == 0 || !enough(candidates_[high - 1])) return Bisect(enough);
  // Where a plain sum reaches the target is the cut or next to it; the tiled sums decide.
  int64_t guess = 0;
  for (double plain = 0; guess < high && plain < target; ++guess) {
    plain += Exp((candidates_[guess].z - rule.best) / rule.temperature);
  }
  bool moved_low = false;
  bool moved_high = false;
  for (int64_t step = 1; high - low > 1; step *= 2) {
    const bool bracketed = moved_low && moved_high;
    const int64_t probe = std::clamp(bracketed ? (low + high) / 2 : guess, low + 1, high - 1);
    if (enough(candidates_[probe - 1])) {
      high = probe;
      moved_high = true;
      guess = probe - step;
    } else {
      low = probe;
      moved_low = true;
      guess = probe + step;
    }
  }
  return candidates_[high - 1];
}

int32_t RowSampler::Draw(const WeightRule& rule) {
  const float target = RandomUniform(row_.seed, row_.position, row_.draw) * WeightSum(rule);
  alignas(32) float weights[kSamplerTile];
  float before = 0;  // running sum of the tiles before the chosen one
  int64_t chosen = -1;
  float running = 0;
  for (int64_t tile = 0; tile < tile_count() && !(running > target); ++tile) {
    if (!WeighTile(tile, rule, weights)) continue;
    const float sum = parts_.sum_tile(weights);
    if (!(sum > 0)) continue;
    chosen = tile;
    before = running;
    running = running + sum;
  }
  WeighTile(chosen, rule, weights);
  int32_t token_id = 0;
  for (int64_t i = 0; i < kSamplerTile; ++i) {
    if (!(weights[i] > 0)) continue;
    token_id = static_cast<int32_t>(chosen * kSamplerTile + i);
    before = before + weights[i];
    if (before > target) break;
  }
  return token_id;
}

void RowSampler::ReportLogprobs(SamplerResult* result) {
  const float log_sum = Log(WeightSum({.best = raw_max_}));
  const auto logprob = [&](float logit) { return (logit - raw_max_) - log_sum; };
  result->logprob = logprob(z_[result->token_id]);
  const int64_t count = std::min<int64_t>(row_.top_count, vocab_size_);
  result->top_count = static_cast<int32_t>(count);
  if (count == 0) return;
  if (!CollectTop(count)) {
    // More than kMaxCandidates ties with the last of them: their ids decide.
    const RankedToken cut = Bisect(
        [&](RankedToken trial) { return parts_.count_ranked(z_, vocab_size_, trial) >= count; });
    candidate_count_ = 0;
    for (int64_t i = 0; i < vocab_size_; ++i) {
      const RankedToken token{z_[i], static_cast<int32_t>(i)};
      if (!RanksBefore(cut, token)) candidates_[candidate_count_++] = token;
    }
    std::sort(candidates_, candidates_ + count, RanksBefore);
  }
  for (int64_t i = 0; i < count; ++i) {
    result->top_tokens[i] = candidates_[i].token_id;
    result->top_logprobs[i] = logprob(candidates_[i].z);
  }
}

template <Isa kIsa>
void Sampler(const SamplerArgs& args, WorkRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.results[row] = RowSampler(SamplerPartsFor(kIsa), args.rows[row], args.vocab_size).Run();
  }
}

}  // namespace

OpFunction<SamplerArgs> SamplerFor(Isa isa) {
  return isa == Isa::kAvx2 ? Sampler<Isa::kAvx2> : Sampler<Isa::kScalar>;
}

}  // namespace octavo::kernels
