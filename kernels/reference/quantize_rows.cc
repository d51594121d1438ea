#include "kernels/quantize_rows.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/half.h"
#include "kernels/reference/linear_ops.h"

namespace octavo::kernels::reference {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kSmallestAmaxBits = 0x0f800000u;  // 2^-96

// |x| * inverse is at most 32767 * (1 + 2^-23), which rounds to 32767: no clamp is needed.
void QuantizeGroup(const float* x, int16_t* values, float* scale, float* sum) {
  uint32_t amax_bits = 0;
  for (int k = 0; k < kActivationGroup; ++k) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu;
    if (magnitude > amax_bits) amax_bits = magnitude;
  }
  if (amax_bits >= kInfinityBits || amax_bits < kSmallestAmaxBits) {
    std::memset(values, 0, kActivationGroup * sizeof(int16_t));
    *scale = *sum = amax_bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    return;
  }
  const float amax = std::bit_cast<float>(amax_bits);
  const float inverse = 32767.0f / amax;
  int32_t total = 0;
  for (int k = 0; k < kActivationGroup; ++k) {
    const auto value = static_cast<int32_t>(std::lrintf(x[k] * inverse));
    values[k] = static_cast<int16_t>(value);
    total += value;
  }
  *scale = amax / 32767.0f;
  *sum = static_cast<float>(total) * *scale;
}

}  // namespace

void QuantizeRows(const QuantizeRowsArgs& args, WorkRange rows) {
  const QuantizedRows& out = args.output;
  const int64_t groups = out.dim / kActivationGroup;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* x = args.input + r * args.input_stride;
    switch (out.format) {
      case ActivationFormat::kInt16:
        for (int64_t g = 0; g < groups; ++g) {
          QuantizeGroup(x + g * kActivationGroup, out.values + r * out.dim + g * kActivationGroup,
                        out.scales + r * groups + g, out.sums + r * groups + g);
        }
        break;
      case ActivationFormat::kBf16:
        for (int64_t k = 0; k < out.dim; ++k) out.bf16[r * out.dim + k] = F32ToBf16(x[k]);
        break;
      case ActivationFormat::kF32:
        if (out.f32 != args.input) {
          std::memcpy(out.f32 + r * out.dim, x, static_cast<size_t>(out.dim) * sizeof(float));
        }
        break;
    }
  }
}

}  // namespace octavo::kernels::reference
