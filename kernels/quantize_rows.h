#pragma once

// Activations on their way into a matrix product: fp32 rows to the format the weights' type takes.
//
// kInt16, in groups of 32 along the row, amax being the largest |x| of the group:
//
//   scale = amax / 32767
//   value = x * (32767 / amax), rounded to nearest even; it lies in [-32767, 32767]
//   sum   = float(sum of the 32 values, exact in int32) * scale
//
//   A group with amax < 2^-96 is zero (scale, values, sum), so that no step meets a subnormal.
//   A group that holds a NaN or an infinity has values 0 and scale = sum = NaN: every output of
//   its row becomes NaN, which the sampler refuses; nothing else in the batch is touched.
//
// kBf16: each value rounded to nearest even; infinities stay, NaNs stay NaN.
//
// kF32: the row as it is.
//
// Every step is a single IEEE operation, so the bits are the same for every instruction set.

#include <cstddef>
#include <cstdint>

#include "common/tensor_type.h"
#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

inline constexpr int64_t kActivationGroup = 32;

enum class ActivationFormat : uint8_t { kInt16, kBf16, kF32 };

// "int16", "bf16", "f32".
const char* ActivationFormatName(ActivationFormat format);

// What a product with weights of `type` takes: kBf16 for BF16, kF32 for F16 and F32, kInt16 for
// every quantised type.
constexpr ActivationFormat ActivationFormatFor(TensorType type) {
  switch (type) {
    case TensorType::kBF16:
      return ActivationFormat::kBf16;
    case TensorType::kF16:
    case TensorType::kF32:
      return ActivationFormat::kF32;
    default:
      return ActivationFormat::kInt16;
  }
}

// A view of rows in one of the formats; the memory is the caller's. Only the pointers of `format`
// are set.
struct QuantizedRows {
  ActivationFormat format = ActivationFormat::kInt16;
  int64_t row_count = 0;
  int64_t dim = 0;            // REQUIRES: a multiple of 32
  int16_t* values = nullptr;  // kInt16: [row_count, dim]
  float* scales = nullptr;    // kInt16: [row_count, dim / 32]
  float* sums = nullptr;  // kInt16: [row_count, dim / 32], what the minimum of Q4_1 and its like is
                          // multiplied with
  uint16_t* bf16 = nullptr;  // kBf16: [row_count, dim]
  float* f32 = nullptr;      // kF32: [row_count, dim]
};

// Bytes that rows of a format take when laid out by LayOutRows; a multiple of 64.
size_t QuantizedRowsBytes(ActivationFormat format, int64_t row_count, int64_t dim);

// The view whose arrays lie one after the other, each on a multiple of 64 bytes, in `memory`.
// REQUIRES: `memory` has QuantizedRowsBytes(...) bytes and 64-byte alignment.
QuantizedRows LayOutRows(ActivationFormat format, void* memory, int64_t row_count, int64_t dim);

// The rows [begin, begin + count) of `rows`, as a view of the same memory.
QuantizedRows SliceRows(const QuantizedRows& rows, int64_t begin, int64_t count);

struct QuantizeRowsArgs {
  const float* input = nullptr;  // [output.row_count, output.dim]
  int64_t input_stride = 0;      // floats from one input row to the next
  QuantizedRows
      output;  // for kF32, output.f32 may be `input` itself (stride dim): nothing is done then
};

// Work items are rows.
inline int64_t QuantizeRowsWorkCount(const QuantizeRowsArgs& args) { return args.output.row_count; }
OpFunction<QuantizeRowsArgs> QuantizeRowsFor(Isa isa);

}  // namespace octavo::kernels
