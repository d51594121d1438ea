#include "kernels/reference/stored_blocks.h"

namespace octavo::kernels {
namespace {

// Blocks of 32: byte j holds element j in its low half and element j + 16 in its high half.
void LoadNibbles32(const uint8_t* quants, int8_t codes[32]) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<int8_t>(quants[j] & 15);
    codes[j + 16] = static_cast<int8_t>(quants[j] >> 4);
  }
}

// Superblocks: groups 2i and 2i + 1 are the low and high halves of bytes 32i .. 32i + 31.
void LoadNibbles256(const uint8_t* quants, int group, int8_t codes[32]) {
  const uint8_t* bytes = quants + 32 * (group / 2);
  const int shift = 4 * (group % 2);
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<int8_t>((bytes[j] >> shift) & 15);
}

void AddFifthBits32(uint32_t high, int8_t codes[32]) {
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<int8_t>(codes[j] | (((high >> j) & 1) << 4));
}

// Q6_K: two halves of 128 elements; in each, group i takes its low four bits from ql[32 * (i % 2)
// ..], low halves for i < 2 and high ones for i >= 2, and its upper two from bits 2i of qh.
void LoadQ6Codes(const uint8_t* block, int group, int8_t codes[32]) {
  const int half = group / 4;
  const int i = group % 4;
  const uint8_t* low = block + 64 * half + 32 * (i % 2);
  const uint8_t* high = block + kQ6_KHighAt + 32 * half;
  for (int j = 0; j < 32; ++j) {
    const int nibble = (low[j] >> (4 * (i / 2))) & 15;
    codes[j] = static_cast<int8_t>(nibble | (((high[j] >> (2 * i)) & 3) << 4));
  }
}

}  // namespace

void LoadCodes(TensorType type, const uint8_t* block, int group, int8_t codes[32]) {
  switch (type) {
    case TensorType::kQ4_0:
      return LoadNibbles32(block + kQ4_0QuantsAt, codes);
    case TensorType::kQ4_1:
      return LoadNibbles32(block + kQ4_1QuantsAt, codes);
    case TensorType::kQ5_0:
      LoadNibbles32(block + kQ5_0QuantsAt, codes);
      return AddFifthBits32(LoadU32(block + kQ5_0HighAt), codes);
    case TensorType::kQ5_1:
      LoadNibbles32(block + kQ5_1QuantsAt, codes);
      return AddFifthBits32(LoadU32(block + kQ5_1HighAt), codes);
    case TensorType::kQ8_0:
      std::memcpy(codes, block + kQ8_0QuantsAt, 32);
      return;
    case TensorType::kQ4_K:
      return LoadNibbles256(block + kQ4_KQuantsAt, group, codes);
    case TensorType::kQ5_K: {
      LoadNibbles256(block + kQ5_KQuantsAt, group, codes);
      const uint8_t* high = block + kQ5_KHighAt;
      for (int j = 0; j < 32; ++j) {
        codes[j] = static_cast<int8_t>(codes[j] | (((high[j] >> group) & 1) << 4));
      }
      return;
    }
    case TensorType::kQ6_K:
      return LoadQ6Codes(block, group, codes);
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      return;  // no codes: these hold values
  }
}

}  // namespace octavo::kernels
