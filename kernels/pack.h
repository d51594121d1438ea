#pragma once

// Weights as the matrix product reads them: repacked once at load so that SIMD lanes run over
// output columns and the memory is read front to back. One layout for every instruction set.
//
// A matrix of `rows` outputs by `columns` inputs is cut into panels of 16 outputs; the last is
// padded with zeros. A panel is the sequence of its units (32 inputs, or a superblock of 256) in K
// order. Below, o is the output within the panel (0..15), k the input within its group of 32, t = k
// / 2 the pair, p = k % 2 the place in it, h = o / 8 the half of the panel, and lane = 2 * (o % 8)
// + p one of the 16 16-bit lanes of a 32-byte vector.
//
//   type   one unit                                                       bytes
//   Q4_0   d[16] f16, nibbles[256]                                        288
//   Q4_1   d[16] f16, m[16] f16, nibbles[256]                             320
//   Q5_0   d[16] f16, bits[64], nibbles[256]                              352
//   Q5_1   d[16] f16, m[16] f16, bits[64], nibbles[256]                   384
//   Q8_0   d[16] f16, int8 [t][o][p]                                      544
//   Q4_K   d[16] f16, dmin[16] f16, then per group                        64 + 8 * 288
//              scale[16] u8, min[16] u8, nibbles[256]
//   Q5_K   d[16] f16, dmin[16] f16, then per group                        64 + 8 * 352
//              scale[16] u8, min[16] u8, bits[64], nibbles[256]
//   Q6_K   d[16] f16, then per group                                      32 + 8 * 416
//              scale[k / 16][16] i8, pairs[128], nibbles[256]
//   BF16   [t][o][p] bf16                                                 1,024
//   F16    [k][o] f16                                                     1,024
//   F32    [k][o] f32                                                     2,048
//
// The planes of codes:
//
//   nibbles  [b = 0..3][h][lane] u16: bits 4s..4s+3 are the low four bits of the code of
//            k = 8b + 2s + p; Q4_0 stores q - 8 in two's complement, the others the file's bits
//
//   bits     [h][lane] u16: bit t is the fifth bit of the code of k = 2t + p; inverted in Q5_0,
//            where a set bit then means "minus 16"
//
//   pairs    [c = 0..1][h][lane] u16: bits 2f..2f+1 are the upper two of k = 2(8c + f) + p, the
//            higher one inverted, so that all six are the two's complement of q - 32

#include <cstddef>
#include <cstdint>

#include "common/tensor_type.h"
#include "kernels/work.h"

namespace octavo::kernels {

inline constexpr int64_t kPanelWidth = 16;  // outputs a panel holds

// A view of a packed matrix; the memory is the caller's. Aligned to 64 bytes.
struct PackedMatrix {
  TensorType type = TensorType::kF32;
  int64_t rows = 0;     // outputs, N
  int64_t columns = 0;  // inputs, K
  const uint8_t* bytes = nullptr;

  int64_t panel_count() const { return (rows + kPanelWidth - 1) / kPanelWidth; }
};

// Inputs that are packed as one: 256 for the K quants, 32 for all others. The columns of a packed
// matrix, and of each slice of it (kernels/linear.h), are a multiple of it.
constexpr int64_t PackUnit(TensorType type) {
  const int64_t block = TraitsOf(type).block_elements;
  return block < 32 ? 32 : block;
}

// Bytes of one panel, and of the whole matrix with its padded last panel. REQUIRES: columns %
// PackUnit(type) == 0.
size_t PanelBytes(TensorType type, int64_t columns);
size_t PackedBytes(TensorType type, int64_t rows, int64_t columns);

struct PackArgs {
  TensorType type = TensorType::kF32;
  const uint8_t* source =
      nullptr;                // first block of the first row, as in the GGUF file; any alignment
  int64_t source_stride = 0;  // bytes from one source row to the next; a column shard has a stride
                              // above RowBytes(type, columns)
  int64_t rows = 0;
  int64_t columns = 0;  // REQUIRES: a multiple of PackUnit(type)
  uint8_t* packed =
      nullptr;  // PackedBytes(type, rows, columns) bytes; matrices of one type whose rows are
                // multiples of 16 may be packed one after the other and multiplied as one
};

// Work items are panels. One implementation: it moves bits and is as fast as the file is read.
inline int64_t PackWorkCount(const PackArgs& args) {
  return (args.rows + kPanelWidth - 1) / kPanelWidth;
}
void Pack(const PackArgs& args, WorkRange panels);

}  // namespace octavo::kernels
