#pragma once

// Random weights and activations for the tests of the linear ops, and the buffers they live in.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/tensor_type.h"
#include "kernels/dequantize.h"
#include "kernels/half.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/pack.h"
#include "kernels/quantize_rows.h"

namespace octavo::kernels {

inline constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                           TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1,
                                           TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ4_K,
                                           TensorType::kQ5_K, TensorType::kQ6_K};

// Memory aligned to 64 bytes, filled with 0xa5 so that what is not written shows.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : bytes_(static_cast<uint8_t*>(::operator new(size + 64, std::align_val_t{64}))),
        size_(size) {
    std::memset(bytes_, 0xa5, size + 64);
  }
  ~AlignedBytes() { ::operator delete(bytes_, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  uint8_t* data() { return bytes_; }
  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  uint8_t* bytes_;
  size_t size_;
};

enum class Spread {
  kTypical,  // what models hold: nothing overflows
  kExtreme,  // every finite scale and value, subnormals and zeros included: sums overflow and
             // become NaN
};

// A tensor of [rows, columns] as it lies in a GGUF file, every field random.
inline std::vector<uint8_t> RandomTensor(TensorType type, int64_t rows, int64_t columns,
                                         Spread spread, std::mt19937_64& rng) {
  const TensorTypeTraits traits = TraitsOf(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) *
                             RowBytes(type, static_cast<size_t>(columns)));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  std::normal_distribution<float> normal;
  const auto half = [&]() -> uint16_t {
    if (spread == Spread::kTypical) return F32ToF16(normal(rng) * 0.01f);
    const auto bits =
        static_cast<uint16_t>(rng() & 0xfbff);  // any sign and mantissa; exponent below 31
    return (bits & 0x7c00) == 0x7c00 ? static_cast<uint16_t>(bits & 0x83ff) : bits;
  };
  const auto store_half = [](uint8_t* at, uint16_t value) { std::memcpy(at, &value, 2); };
  for (size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    uint8_t* block = bytes.data() + at;
    switch (type) {
      case TensorType::kF32: {
        float value = normal(rng) * 0.05f;
        if (spread == Spread::kExtreme)
          value *= std::ldexp(1.0f, static_cast<int>(rng() % 250) - 140);
        std::memcpy(block, &value, 4);
        break;
      }
      case TensorType::kBF16: {
        float value = normal(rng) * 0.05f;
        if (spread == Spread::kExtreme)
          value *= std::ldexp(1.0f, static_cast<int>(rng() % 250) - 140);
        store_half(block, F32ToBf16(value));
        break;
      }
      case TensorType::kQ6_K:
        store_half(block + 208, half());
        break;
      case TensorType::kF16:
      case TensorType::kQ4_0:
      case TensorType::kQ5_0:
      case TensorType::kQ8_0:
        store_half(block, half());
        break;
      case TensorType::kQ4_1:
      case TensorType::kQ5_1:
      case TensorType::kQ4_K:
      case TensorType::kQ5_K:
        store_half(block, half());
        store_half(block + 2, half());
        break;
    }
  }
  return bytes;
}

inline std::vector<float> RandomRows(int64_t rows, int64_t dim, Spread spread,
                                     std::mt19937_64& rng) {
  std::vector<float> values(static_cast<size_t>(rows * dim));
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(rng);
    if (rng() % 37 == 0) values[i] *= 40.0f;  // activations have outliers
    if (spread == Spread::kExtreme) {
      const uint64_t kind = (i / 32 * 7919) % 5;  // by group of 32
      if (kind == 0) values[i] = 0.0f * normal(rng);
      if (kind == 1) values[i] *= 0x1p-120f;
      if (kind == 2) values[i] = std::ldexp(values[i], static_cast<int>(rng() % 240) - 140);
      if (kind == 3) values[i] *= 0x1p100f;
    }
  }
  return values;
}

inline std::vector<float> Dequantized(TensorType type, const std::vector<uint8_t>& tensor,
                                      int64_t rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  const DequantizeArgs args{.type = type,
                            .table = tensor.data(),
                            .row_count = rows,
                            .columns = columns,
                            .output = values.data(),
                            .output_stride = columns};
  DequantizeFor(Isa::kScalar)(args, {0, DequantizeWorkCount(args)});
  return values;
}

// A packed matrix with its memory.
struct PackedTensor {
  AlignedBytes bytes;
  PackedMatrix matrix;

  PackedTensor(TensorType type, const std::vector<uint8_t>& tensor, int64_t rows, int64_t columns)
      : bytes(PackedBytes(type, rows, columns)),
        matrix{.type = type, .rows = rows, .columns = columns, .bytes = bytes.data()} {
    const PackArgs args{
        .type = type,
        .source = tensor.data(),
        .source_stride = static_cast<int64_t>(RowBytes(type, static_cast<size_t>(columns))),
        .rows = rows,
        .columns = columns,
        .packed = bytes.data()};
    Pack(args, {0, PackWorkCount(args)});
  }
};

// Rows in one of the activation formats, with their memory.
struct PreparedRows {
  AlignedBytes bytes;
  QuantizedRows rows;

  PreparedRows(ActivationFormat format, std::span<const float> input, int64_t row_count,
               int64_t dim, Isa isa = Isa::kScalar)
      : bytes(QuantizedRowsBytes(format, row_count, dim)),
        rows(LayOutRows(format, bytes.data(), row_count, dim)) {
    const QuantizeRowsArgs args{.input = input.data(), .input_stride = dim, .output = rows};
    QuantizeRowsFor(isa)(args, {0, QuantizeRowsWorkCount(args)});
  }
};

// Index of the first value whose bits differ, NaNs being equal to NaNs (their payload is not
// promised); -1 if there is none.
inline int64_t FirstDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return static_cast<int64_t>(std::min(a.size(), b.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
      return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace octavo::kernels
