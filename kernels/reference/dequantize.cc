#include "kernels/dequantize.h"

#include "kernels/half.h"
#include "kernels/reference/stored_blocks.h"

namespace octavo::kernels {
namespace {

// Every product of a code and its scale is exact in fp32 (11 bits of the half, at most 8 of the
// scale and 6 of the code), so what is written as a product and a sum has one rounding, as in the
// reference.
void DequantizeGroup(TensorType type, const uint8_t* block, int group, float* output) {
  int8_t codes[32];
  LoadCodes(type, block, group, codes);
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0: {
      const float d = F16ToF32(LoadU16(block));
      const int zero = type == TensorType::kQ4_0 ? 8 : type == TensorType::kQ5_0 ? 16 : 0;
      for (int j = 0; j < 32; ++j) output[j] = d * static_cast<float>(codes[j] - zero);
      return;
    }
    case TensorType::kQ4_1:
    case TensorType::kQ5_1: {
      const float d = F16ToF32(LoadU16(block));
      const float m = F16ToF32(LoadU16(block + 2));
      for (int j = 0; j < 32; ++j) output[j] = d * static_cast<float>(codes[j]) + m;
      return;
    }
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: {
      uint8_t scale = 0;
      uint8_t min = 0;
      LoadScaleAndMin(block + kKScalesAt, group, &scale, &min);
      const float d = F16ToF32(LoadU16(block)) * static_cast<float>(scale);
      const float m = F16ToF32(LoadU16(block + 2)) * static_cast<float>(min);
      for (int j = 0; j < 32; ++j) output[j] = d * static_cast<float>(codes[j]) - m;
      return;
    }
    case TensorType::kQ6_K: {
      const float d = F16ToF32(LoadU16(block + kQ6_KDeltaAt));
      const uint8_t* scales = block + kQ6_KScalesAt + 2 * group;
      for (int j = 0; j < 32; ++j) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[j / 16]));
        output[j] = scale * static_cast<float>(codes[j] - 32);
      }
      return;
    }
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      return;
  }
}

void DequantizeRow(TensorType type, const uint8_t* row, int64_t columns, float* output) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(output, row, static_cast<size_t>(columns) * 4);
      return;
    case TensorType::kF16:
      for (int64_t k = 0; k < columns; ++k) output[k] = F16ToF32(LoadU16(row + 2 * k));
      return;
    case TensorType::kBF16:
      for (int64_t k = 0; k < columns; ++k) output[k] = Bf16ToF32(LoadU16(row + 2 * k));
      return;
    default:
      break;
  }
  const TensorTypeTraits traits = TraitsOf(type);
  const int groups = static_cast<int>(traits.block_elements / 32);
  for (int64_t k = 0; k < columns; k += traits.block_elements, row += traits.block_bytes) {
    for (int g = 0; g < groups; ++g) DequantizeGroup(type, row, g, output + k + 32 * g);
  }
}

void Dequantize(const DequantizeArgs& args, WorkRange items) {
  const auto row_bytes =
      static_cast<int64_t>(RowBytes(args.type, static_cast<size_t>(args.columns)));
  for (int64_t i = items.begin; i < items.end; ++i) {
    const int64_t row = args.row_indices != nullptr ? args.row_indices[i] : i;
    DequantizeRow(args.type, args.table + row * row_bytes, args.columns,
                  args.output + i * args.output_stride);
  }
}

}  // namespace

OpFunction<DequantizeArgs> DequantizeFor(Isa) { return &Dequantize; }

}  // namespace octavo::kernels
