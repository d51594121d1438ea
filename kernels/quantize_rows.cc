#include "kernels/quantize_rows.h"

#include "kernels/cpu/linear_ops_avx2.h"
#include "kernels/reference/linear_ops.h"

namespace octavo::kernels {
namespace {

constexpr size_t RoundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct ArraySizes {
  size_t values;  // the elements themselves
  size_t groups;  // scales, and as much again for the sums
};

ArraySizes SizesOf(ActivationFormat format, int64_t row_count, int64_t dim) {
  const size_t elements = static_cast<size_t>(row_count) * static_cast<size_t>(dim);
  switch (format) {
    case ActivationFormat::kInt16:
      return {RoundUp64(elements * 2), RoundUp64(elements / kActivationGroup * sizeof(float))};
    case ActivationFormat::kBf16:
      return {RoundUp64(elements * 2), 0};
    case ActivationFormat::kF32:
      return {RoundUp64(elements * 4), 0};
  }
  return {0, 0};
}

}  // namespace

const char* ActivationFormatName(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kInt16:
      return "int16";
    case ActivationFormat::kBf16:
      return "bf16";
    case ActivationFormat::kF32:
      return "f32";
  }
  return "?";
}

size_t QuantizedRowsBytes(ActivationFormat format, int64_t row_count, int64_t dim) {
  const ArraySizes sizes = SizesOf(format, row_count, dim);
  return sizes.values + 2 * sizes.groups;
}

QuantizedRows LayOutRows(ActivationFormat format, void* memory, int64_t row_count, int64_t dim) {
  QuantizedRows rows{.format = format, .row_count = row_count, .dim = dim};
  const ArraySizes sizes = SizesOf(format, row_count, dim);
  auto* bytes = static_cast<uint8_t*>(memory);
  switch (format) {
    case ActivationFormat::kInt16:
      rows.values = reinterpret_cast<int16_t*>(bytes);
      rows.scales = reinterpret_cast<float*>(bytes + sizes.values);
      rows.sums = reinterpret_cast<float*>(bytes + sizes.values + sizes.groups);
      break;
    case ActivationFormat::kBf16:
      rows.bf16 = reinterpret_cast<uint16_t*>(bytes);
      break;
    case ActivationFormat::kF32:
      rows.f32 = reinterpret_cast<float*>(bytes);
      break;
  }
  return rows;
}

QuantizedRows SliceRows(const QuantizedRows& rows, int64_t begin, int64_t count) {
  QuantizedRows slice = rows;
  slice.row_count = count;
  const int64_t groups = rows.dim / kActivationGroup;
  switch (rows.format) {
    case ActivationFormat::kInt16:
      slice.values += begin * rows.dim;
      slice.scales += begin * groups;
      slice.sums += begin * groups;
      break;
    case ActivationFormat::kBf16:
      slice.bf16 += begin * rows.dim;
      break;
    case ActivationFormat::kF32:
      slice.f32 += begin * rows.dim;
      break;
  }
  return slice;
}

OpFunction<QuantizeRowsArgs> QuantizeRowsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &reference::QuantizeRows;
    case Isa::kAvx2:
      return &avx2::QuantizeRows;
  }
  return &reference::QuantizeRows;
}

}  // namespace octavo::kernels
