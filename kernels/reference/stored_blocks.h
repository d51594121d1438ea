#pragma once

// The block formats of GGUF, read one group of 32 elements at a time: what dequantisation and
// packing share. Layouts after ggml-common.h (block_q4_0 ... block_q6_K); all fields little-endian.
// Internal to kernels/.

#include <cstdint>
#include <cstring>

#include "common/tensor_type.h"

namespace octavo::kernels {

static inline uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

static inline uint32_t LoadU32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Bytes before the first quant of a block.
inline constexpr int kQ4_0QuantsAt = 2;
inline constexpr int kQ4_1QuantsAt = 4;
inline constexpr int kQ5_0HighAt = 2, kQ5_0QuantsAt = 6;
inline constexpr int kQ5_1HighAt = 4, kQ5_1QuantsAt = 8;
inline constexpr int kQ8_0QuantsAt = 2;
inline constexpr int kKScalesAt =
    4;  // Q4_K and Q5_K: d, dmin, then 12 bytes of 6-bit scales and minima
inline constexpr int kQ4_KQuantsAt = 16;
inline constexpr int kQ5_KHighAt = 16, kQ5_KQuantsAt = 48;
inline constexpr int kQ6_KHighAt = 128, kQ6_KScalesAt = 192, kQ6_KDeltaAt = 208;

// Scale and minimum of group `group` (0..7) from the 12 packed bytes of Q4_K and Q5_K, each 0..63.
static inline void LoadScaleAndMin(const uint8_t* scales, int group, uint8_t* scale, uint8_t* min) {
  if (group < 4) {
    *scale = scales[group] & 63;
    *min = scales[group + 4] & 63;
    return;
  }
  *scale = static_cast<uint8_t>((scales[group + 4] & 15) | ((scales[group - 4] >> 6) << 4));
  *min = static_cast<uint8_t>((scales[group + 4] >> 4) | ((scales[group] >> 6) << 4));
}

// The stored codes of group `group` of a quantised block, before any offset is taken off: 0..15,
// 0..31, 0..63, or -128..127 for Q8_0. `group` is 0 for blocks of 32.
void LoadCodes(TensorType type, const uint8_t* block, int group, int8_t codes[32]);

}  // namespace octavo::kernels
