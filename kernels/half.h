#pragma once

// The two 16-bit floating-point formats, one value at a time, in integer arithmetic: the same bits
// as F16C's instructions and AMX's expectations, whatever the mode of the floating-point unit.
// `static`: see the rule in kernels/isa.h.

#include <bit>
#include <cstdint>

namespace octavo::kernels {

// IEEE 754 binary16 to binary32; exact. A NaN keeps its payload and becomes quiet.
[[maybe_unused]] static inline float F16ToF32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1fu) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A subnormal half is mantissa * 2^-24: move its leading one to bit 10.
  const int shift = std::countl_zero(mantissa) - 21;
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) |
                              (((mantissa << shift) & 0x3ffu) << 13));
}

// Binary32 to binary16, round to nearest even; overflow becomes infinity, subnormal results are
// kept (as VCVTPS2PH does).
[[maybe_unused]] static inline uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude >= 0x38800000u) {                                              // >= 2^-14: normal
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
  }
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // < 2^-25 rounds to zero
  // Subnormal result: units of 2^-24.
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126u - (magnitude >> 23);  // 14 to 24
  const uint32_t whole = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t tie = 1u << (shift - 1u);
  const uint32_t up = rest > tie || (rest == tie && (whole & 1u) != 0) ? 1u : 0u;
  return static_cast<uint16_t>(sign | (whole + up));
}

// bfloat16 to binary32; exact.
[[maybe_unused]] static inline float Bf16ToF32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Binary32 to bfloat16, round to nearest even; subnormals are rounded like any other, a NaN becomes
// quiet.
[[maybe_unused]] static inline uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace octavo::kernels
