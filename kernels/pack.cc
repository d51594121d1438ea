#include "kernels/pack.h"

#include <cstring>

#include "kernels/packed_layout.h"
#include "kernels/reference/stored_blocks.h"

namespace octavo::kernels {
namespace {

void StoreU16(uint8_t* bytes, uint16_t value) { std::memcpy(bytes, &value, sizeof(value)); }

// The three code planes of one output's group. `codes` are as LoadCodes gives them, with any offset
// already folded in by the caller so that plain bit fields are stored.
struct CodePlanes {
  int output;  // 0..15 within the panel

  uint8_t* Lane(uint8_t* plane, int row_of_halves, int p) const {
    const int half = output / 8;
    const int lane = 2 * (output % 8) + p;
    return plane + 64 * row_of_halves + 32 * half + 2 * lane;
  }

  void StoreNibbles(uint8_t* nibbles, const int8_t codes[32]) const {
    for (int b = 0; b < 4; ++b) {
      for (int p = 0; p < 2; ++p) {
        const int8_t* q = codes + 8 * b + p;
        StoreU16(Lane(nibbles, b, p), static_cast<uint16_t>((q[0] & 15) | (q[2] & 15) << 4 |
                                                            (q[4] & 15) << 8 | (q[6] & 15) << 12));
      }
    }
  }

  void StoreFifthBits(uint8_t* bits, const int8_t codes[32]) const {
    for (int p = 0; p < 2; ++p) {
      uint32_t word = 0;
      for (int t = 0; t < 16; ++t) {
        word |= static_cast<uint32_t>((codes[2 * t + p] >> 4) & 1) << t;
      }
      StoreU16(Lane(bits, 0, p), static_cast<uint16_t>(word));
    }
  }

  void StoreUpperPairs(uint8_t* pairs, const int8_t codes[32]) const {
    for (int c = 0; c < 2; ++c) {
      for (int p = 0; p < 2; ++p) {
        uint32_t word = 0;
        for (int f = 0; f < 8; ++f) {
          word |= static_cast<uint32_t>((codes[2 * (8 * c + f) + p] >> 4) & 3) << (2 * f);
        }
        StoreU16(Lane(pairs, c, p), static_cast<uint16_t>(word));
      }
    }
  }
};

// One group of one output: `block` is the stored block that holds it, `group` its number there,
// `body` the packed group.
void PackGroup(TensorType type, const uint8_t* block, int group, int output, uint8_t* body) {
  const CodePlanes planes{output};
  int8_t codes[32];
  LoadCodes(type, block, group, codes);
  switch (type) {
    case TensorType::kQ4_0:
      for (int8_t& code : codes) code = static_cast<int8_t>(code ^ 8);  // q - 8 in four bits
      return planes.StoreNibbles(body, codes);
    case TensorType::kQ4_1:
      return planes.StoreNibbles(body, codes);
    case TensorType::kQ5_0:
      for (int8_t& code : codes) code = static_cast<int8_t>(code ^ 16);
      planes.StoreFifthBits(body, codes);
      return planes.StoreNibbles(body + 64, codes);
    case TensorType::kQ5_1:
      planes.StoreFifthBits(body, codes);
      return planes.StoreNibbles(body + 64, codes);
    case TensorType::kQ8_0:
      for (int k = 0; k < 32; ++k) {
        body[32 * (k / 2) + 2 * output + k % 2] = static_cast<uint8_t>(codes[k]);
      }
      return;
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: {
      LoadScaleAndMin(block + kKScalesAt, group, body + output, body + 16 + output);
      uint8_t* rest = body + 32;
      if (type == TensorType::kQ5_K) {
        planes.StoreFifthBits(rest, codes);
        rest += 64;
      }
      return planes.StoreNibbles(rest, codes);
    }
    case TensorType::kQ6_K:
      body[output] = block[kQ6_KScalesAt + 2 * group];
      body[16 + output] = block[kQ6_KScalesAt + 2 * group + 1];
      for (int8_t& code : codes) code = static_cast<int8_t>(code ^ 32);  // q - 32 in six bits
      planes.StoreUpperPairs(body + 32, codes);
      return planes.StoreNibbles(body + 160, codes);
    case TensorType::kBF16:
      for (int k = 0; k < 32; ++k) {
        std::memcpy(body + 64 * (k / 2) + 4 * output + 2 * (k % 2), block + 2 * k, 2);
      }
      return;
    case TensorType::kF16:
      for (int k = 0; k < 32; ++k) std::memcpy(body + 32 * k + 2 * output, block + 2 * k, 2);
      return;
    case TensorType::kF32:
      for (int k = 0; k < 32; ++k) std::memcpy(body + 64 * k + 4 * output, block + 4 * k, 4);
      return;
  }
}

// d, and m or dmin where the type has one, as they are stored: halves.
void PackHeader(TensorType type, const uint8_t* block, int output, uint8_t* header) {
  const int header_bytes = UnitLayoutOf(type).header_bytes;
  if (header_bytes == 0) return;
  const uint8_t* d = type == TensorType::kQ6_K ? block + kQ6_KDeltaAt : block;
  std::memcpy(header + 2 * output, d, 2);
  if (header_bytes == 64) std::memcpy(header + 32 + 2 * output, block + 2, 2);
}

}  // namespace

size_t PanelBytes(TensorType type, int64_t columns) {
  return static_cast<size_t>(columns / PackUnit(type)) * static_cast<size_t>(UnitBytes(type));
}

size_t PackedBytes(TensorType type, int64_t rows, int64_t columns) {
  const int64_t panels = (rows + kPanelWidth - 1) / kPanelWidth;
  return static_cast<size_t>(panels) * PanelBytes(type, columns);
}

void Pack(const PackArgs& args, WorkRange panels) {
  const UnitLayout layout = UnitLayoutOf(args.type);
  const size_t panel_bytes = PanelBytes(args.type, args.columns);
  const int64_t units = args.columns / PackUnit(args.type);
  const auto unit_source_bytes =
      static_cast<int64_t>(RowBytes(args.type, static_cast<size_t>(PackUnit(args.type))));
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    uint8_t* unit = args.packed + static_cast<size_t>(panel) * panel_bytes;
    const int64_t first = panel * kPanelWidth;
    const int outputs =
        static_cast<int>(args.rows - first < kPanelWidth ? args.rows - first : kPanelWidth);
    if (outputs < kPanelWidth) std::memset(unit, 0, panel_bytes);
    for (int64_t u = 0; u < units; ++u, unit += UnitBytes(args.type)) {
      for (int o = 0; o < outputs; ++o) {
        const uint8_t* block =
            args.source + (first + o) * args.source_stride + u * unit_source_bytes;
        PackHeader(args.type, block, o, unit);
        for (int g = 0; g < layout.groups; ++g) {
          PackGroup(args.type, block, g, o, unit + layout.header_bytes + g * layout.group_bytes);
        }
      }
    }
  }
}

}  // namespace octavo::kernels
