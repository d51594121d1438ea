#pragma once

// Sizes of the pieces of a packed panel (kernels/pack.h), shared by the packer and every reader of
// it. A unit is PackUnit(type) inputs of 16 outputs: a header, then one or eight groups of 32
// inputs. Internal to kernels/.

#include <cstdint>

#include "common/tensor_type.h"

namespace octavo::kernels {

struct UnitLayout {
  int32_t groups;        // groups of 32 inputs
  int32_t header_bytes;  // d, and m or dmin where there is one
  int32_t group_bytes;
};

constexpr UnitLayout UnitLayoutOf(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {1, 32, 256};
    case TensorType::kQ4_1:
      return {1, 64, 256};
    case TensorType::kQ5_0:
      return {1, 32, 64 + 256};
    case TensorType::kQ5_1:
      return {1, 64, 64 + 256};
    case TensorType::kQ8_0:
      return {1, 32, 512};
    case TensorType::kQ4_K:
      return {8, 64, 32 + 256};
    case TensorType::kQ5_K:
      return {8, 64, 32 + 64 + 256};
    case TensorType::kQ6_K:
      return {8, 32, 32 + 128 + 256};
    case TensorType::kBF16:
    case TensorType::kF16:
      return {1, 0, 1024};
    case TensorType::kF32:
      return {1, 0, 2048};
  }
  return {1, 0, 0};
}

constexpr int32_t UnitBytes(TensorType type) {
  const UnitLayout layout = UnitLayoutOf(type);
  return layout.header_bytes + layout.groups * layout.group_bytes;
}

}  // namespace octavo::kernels
