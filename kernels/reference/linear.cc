#include "kernels/linear.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/half.h"
#include "kernels/packed_layout.h"
#include "kernels/reference/linear_ops.h"
#include "kernels/reference/stored_blocks.h"

namespace octavo::kernels::reference {
namespace {

// One group of 32 inputs of a panel, unpacked: what every row of the tile is multiplied with.
struct IntegerGroup {
  int16_t codes[32][16];      // [k][output], offsets taken off
  int32_t half_scale[2][16];  // Q6_K only
  float scale[16];
  float min[16];  // what the row's sum is multiplied with; used if has_min
};

bool HasMin(TensorType type) {
  return type == TensorType::kQ4_1 || type == TensorType::kQ5_1 || type == TensorType::kQ4_K ||
         type == TensorType::kQ5_K;
}

uint32_t Word(const uint8_t* plane, int row_of_halves, int output, int p) {
  return LoadU16(plane + 64 * row_of_halves + 32 * (output / 8) + 2 * (2 * (output % 8) + p));
}

int Nibble(const uint8_t* nibbles, int k, int output) {
  return static_cast<int>(Word(nibbles, k / 8, output, k % 2) >> (4 * (k % 8 / 2))) & 15;
}

int FifthBit(const uint8_t* bits, int k, int output) {
  return static_cast<int>(Word(bits, 0, output, k % 2) >> (k / 2)) & 1;
}

int UpperPair(const uint8_t* pairs, int k, int output) {
  return static_cast<int>(Word(pairs, k / 16, output, k % 2) >> (2 * (k % 16 / 2))) & 3;
}

// The code of (k, output), as the number that enters the sum.
int CodeAt(TensorType type, const uint8_t* body, int k, int output) {
  switch (type) {
    case TensorType::kQ4_0: {
      const int nibble = Nibble(body, k, output);
      return nibble < 8 ? nibble : nibble - 16;
    }
    case TensorType::kQ4_1:
      return Nibble(body, k, output);
    case TensorType::kQ5_0:
      return Nibble(body + 64, k, output) - 16 * FifthBit(body, k, output);
    case TensorType::kQ5_1:
      return Nibble(body + 64, k, output) + 16 * FifthBit(body, k, output);
    case TensorType::kQ8_0:
      return static_cast<int8_t>(body[32 * (k / 2) + 2 * output + k % 2]);
    case TensorType::kQ4_K:
      return Nibble(body + 32, k, output);
    case TensorType::kQ5_K:
      return Nibble(body + 96, k, output) + 16 * FifthBit(body + 32, k, output);
    case TensorType::kQ6_K: {
      const int code = Nibble(body + 160, k, output) + 16 * UpperPair(body + 32, k, output);
      return code < 32 ? code : code - 64;
    }
    default:
      return 0;
  }
}

void UnpackGroup(TensorType type, const uint8_t* header, const uint8_t* body, IntegerGroup* group) {
  for (int k = 0; k < 32; ++k) {
    for (int o = 0; o < 16; ++o) {
      group->codes[k][o] = static_cast<int16_t>(CodeAt(type, body, k, o));
    }
  }
  for (int o = 0; o < 16; ++o) {
    const float d = F16ToF32(LoadU16(header + 2 * o));
    const float m = HasMin(type) ? F16ToF32(LoadU16(header + 32 + 2 * o)) : 0.0f;
    group->scale[o] = d;
    group->min[o] = m;
    if (type == TensorType::kQ4_K || type == TensorType::kQ5_K) {
      group->scale[o] = d * static_cast<float>(body[o]);
      group->min[o] = -(m * static_cast<float>(body[16 + o]));
    }
    if (type == TensorType::kQ6_K) {
      group->half_scale[0][o] = static_cast<int8_t>(body[o]);
      group->half_scale[1][o] = static_cast<int8_t>(body[16 + o]);
    }
  }
}

void AddIntegerGroup(TensorType type, const IntegerGroup& group, const int16_t* x, float x_scale,
                     float x_sum, float acc[16]) {
  for (int o = 0; o < 16; ++o) {
    int32_t halves[2] = {0, 0};
    for (int k = 0; k < 32; ++k) {
      halves[k / 16] += static_cast<int32_t>(group.codes[k][o]) * x[k];
    }
    const float products = type == TensorType::kQ6_K
                               ? static_cast<float>(halves[0] * group.half_scale[0][o]) +
                                     static_cast<float>(halves[1] * group.half_scale[1][o])
                               : static_cast<float>(halves[0] + halves[1]);
    acc[o] = std::fma(products, group.scale[o] * x_scale, acc[o]);
    if (HasMin(type)) acc[o] = std::fma(group.min[o], x_sum, acc[o]);
  }
}

// Rows of one slice, [rows][16], from acc = +0. `unit` is the slice's first unit, `k0` the input it
// starts at.
void IntegerSlice(const LinearArgs& args, const uint8_t* unit, int64_t k0, int64_t k1, int64_t row0,
                  int64_t rows, float* acc) {
  const TensorType type = args.weights.type;
  const UnitLayout layout = UnitLayoutOf(type);
  const QuantizedRows& x = args.activations;
  const int64_t groups_per_row = x.dim / kActivationGroup;
  IntegerGroup group;
  for (int64_t k = k0; k < k1; unit += UnitBytes(type)) {
    for (int g = 0; g < layout.groups; ++g, k += kActivationGroup) {
      UnpackGroup(type, unit, unit + layout.header_bytes + g * layout.group_bytes, &group);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t x_group = (row0 + r) * groups_per_row + k / kActivationGroup;
        AddIntegerGroup(type, group, x.values + (row0 + r) * x.dim + k, x.scales[x_group],
                        x.sums[x_group], acc + 16 * r);
      }
    }
  }
}

void Bf16Slice(const LinearArgs& args, const uint8_t* unit, int64_t k0, int64_t k1, int64_t row0,
               int64_t rows, float* acc) {
  const QuantizedRows& x = args.activations;
  for (int64_t k = k0; k < k1; k += 32, unit += UnitBytes(TensorType::kBF16)) {
    for (int64_t r = 0; r < rows; ++r) {
      const uint16_t* row = x.bf16 + (row0 + r) * x.dim + k;
      for (int o = 0; o < 16; ++o) {
        float chains[2] = {0.0f, 0.0f};
        for (int i = 0; i < 32; ++i) {
          const float w = Bf16ToF32(LoadU16(unit + 64 * (i / 2) + 4 * o + 2 * (i % 2)));
          chains[i % 2] = std::fma(w, Bf16ToF32(row[i]), chains[i % 2]);
        }
        acc[16 * r + o] = acc[16 * r + o] + (chains[0] + chains[1]);
      }
    }
  }
}

float FloatWeight(TensorType type, const uint8_t* unit, int i, int output) {
  if (type == TensorType::kF16) return F16ToF32(LoadU16(unit + 32 * i + 2 * output));
  return std::bit_cast<float>(LoadU32(unit + 64 * i + 4 * output));
}

void FloatSlice(const LinearArgs& args, const uint8_t* unit, int64_t k0, int64_t k1, int64_t row0,
                int64_t rows, float* acc) {
  const TensorType type = args.weights.type;
  const QuantizedRows& x = args.activations;
  for (int64_t k = k0; k < k1; k += 32, unit += UnitBytes(type)) {
    for (int i = 0; i < 32; ++i) {
      for (int o = 0; o < 16; ++o) {
        const float w = FloatWeight(type, unit, i, o);
        for (int64_t r = 0; r < rows; ++r) {
          acc[16 * r + o] = std::fma(w, x.f32[(row0 + r) * x.dim + k + i], acc[16 * r + o]);
        }
      }
    }
  }
}

void Slice(const LinearArgs& args, const uint8_t* unit, int64_t k0, int64_t k1, int64_t row0,
           int64_t rows, float* acc) {
  std::memset(acc, 0, static_cast<size_t>(rows) * 16 * sizeof(float));
  switch (ActivationFormatFor(args.weights.type)) {
    case ActivationFormat::kInt16:
      return IntegerSlice(args, unit, k0, k1, row0, rows, acc);
    case ActivationFormat::kBf16:
      return Bf16Slice(args, unit, k0, k1, row0, rows, acc);
    case ActivationFormat::kF32:
      return FloatSlice(args, unit, k0, k1, row0, rows, acc);
  }
}

// The binary tree over slices [first, first + count), into `sum`.
void SliceTree(const LinearArgs& args, const uint8_t* panel, int first, int count, int64_t row0,
               int64_t rows, float* sum) {
  const int64_t slice_columns = args.weights.columns / args.slice_count;
  if (count == 1) {
    const size_t slice_bytes = PanelBytes(args.weights.type, slice_columns);
    return Slice(args, panel + static_cast<size_t>(first) * slice_bytes, first * slice_columns,
                 (first + 1) * slice_columns, row0, rows, sum);
  }
  float right[kLinearRowTile * kPanelWidth];
  SliceTree(args, panel, first, count / 2, row0, rows, sum);
  SliceTree(args, panel, first + count / 2, count / 2, row0, rows, right);
  for (int64_t i = 0; i < rows * kPanelWidth; ++i) sum[i] += right[i];
}

}  // namespace

void Linear(const LinearArgs& args, WorkRange items) {
  const int64_t row_count = args.activations.row_count;
  const int64_t tiles = (row_count + kLinearRowTile - 1) / kLinearRowTile;
  const size_t panel_bytes = PanelBytes(args.weights.type, args.weights.columns);
  float sum[kLinearRowTile * kPanelWidth];
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t panel = item / tiles;
    const int64_t row0 = item % tiles * kLinearRowTile;
    const int64_t rows = row_count - row0 < kLinearRowTile ? row_count - row0 : kLinearRowTile;
    SliceTree(args, args.weights.bytes + static_cast<size_t>(panel) * panel_bytes, 0,
              args.slice_count, row0, rows, sum);
    const int64_t n0 = panel * kPanelWidth;
    const int64_t width =
        args.weights.rows - n0 < kPanelWidth ? args.weights.rows - n0 : kPanelWidth;
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(args.output + (row0 + r) * args.output_stride + n0, sum + r * kPanelWidth,
                  static_cast<size_t>(width) * sizeof(float));
    }
  }
}

}  // namespace octavo::kernels::reference
