#pragma once

// Element types of stored weight tensors, with their block geometry. Values follow the GGUF
// specification (ggml/docs/gguf.md), so that a file's type number casts directly after
// IsKnownTensorType.

#include <cstddef>
#include <cstdint>

namespace octavo {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct TensorTypeTraits {
  const char* name;         // as GGUF tools print it: "Q4_1"
  uint32_t block_elements;  // elements a block holds along the row
  uint32_t block_bytes;
};

constexpr bool IsKnownTensorType(uint32_t value) {
  switch (static_cast<TensorType>(value)) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ8_0:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
    case TensorType::kQ6_K:
    case TensorType::kBF16:
      return true;
  }
  return false;
}

constexpr TensorTypeTraits TraitsOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {"F32", 1, 4};
    case TensorType::kF16:
      return {"F16", 1, 2};
    case TensorType::kBF16:
      return {"BF16", 1, 2};
    case TensorType::kQ4_0:
      return {"Q4_0", 32, 18};
    case TensorType::kQ4_1:
      return {"Q4_1", 32, 20};
    case TensorType::kQ5_0:
      return {"Q5_0", 32, 22};
    case TensorType::kQ5_1:
      return {"Q5_1", 32, 24};
    case TensorType::kQ8_0:
      return {"Q8_0", 32, 34};
    case TensorType::kQ4_K:
      return {"Q4_K", 256, 144};
    case TensorType::kQ5_K:
      return {"Q5_K", 256, 176};
    case TensorType::kQ6_K:
      return {"Q6_K", 256, 210};
  }
  return {"?", 1, 0};
}

// Bytes of one row of `columns` elements. REQUIRES: columns % block_elements == 0.
constexpr size_t RowBytes(TensorType type, size_t columns) {
  const TensorTypeTraits traits = TraitsOf(type);
  return columns / traits.block_elements * traits.block_bytes;
}

}  // namespace octavo
