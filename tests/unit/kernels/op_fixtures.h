#pragma once

// What the tests of the ops share: reproducible inputs, and calls that check on the way that the
// partition of the work changes nothing.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/random.h"
#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

// The `index`-th number of a stream: uniform in [-range, range).
inline float RandomFloat(uint64_t stream, uint64_t index, float range = 1.0f) {
  return (RandomUniform(stream, index, 0) * 2.0f - 1.0f) * range;
}

inline std::vector<float> RandomFloats(uint64_t stream, int64_t count, float range = 1.0f) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = RandomFloat(stream, i, range);
  return x;
}

// How the items of a call are handed out.
enum class Partition { kOneRange, kSingleItems, kBackwardsInThrees };

template <typename Args>
void RunOp(OpFunction<Args> op, const Args& args, int64_t count,
           Partition partition = Partition::kOneRange) {
  switch (partition) {
    case Partition::kOneRange:
      op(args, {0, count});
      break;
    case Partition::kSingleItems:
      for (int64_t i = 0; i < count; ++i) op(args, {i, i + 1});
      break;
    case Partition::kBackwardsInThrees:
      for (int64_t end = count; end > 0; end -= 3) op(args, {end < 3 ? 0 : end - 3, end});
      break;
  }
}

inline constexpr Partition kAllPartitions[] = {Partition::kOneRange, Partition::kSingleItems,
                                               Partition::kBackwardsInThrees};

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Distance of `value` from the true value in units of the last place of the fp32 number nearest to
// it.
inline double UlpError(float value, double truth) {
  const float nearest = static_cast<float>(truth);
  if (std::isinf(nearest)) return value == nearest ? 0.0 : 1e9;
  int exponent = 0;
  std::frexp(nearest == 0.0f ? 0x1p-126f : nearest, &exponent);
  return std::fabs(value - truth) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

}  // namespace octavo::kernels
