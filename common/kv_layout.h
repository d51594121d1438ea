#pragma once

// The shape of the paged KV cache: the one home of block size. Made once per replica and layer
// group, handed to the engine (which counts blocks) and to the worker (which owns the bytes), and
// fingerprinted in their handshake so that both mean the same slots.
//
// A page holds, per layer, [K|V][kv_head_count][block_size][head_dim] elements of `kv_type`; the
// pool of one layer is [block][K|V][kv_head_count][block_size][head_dim].

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace octavo {

enum class KvType : uint8_t { kF16, kBF16 };

// "f16", "bf16".
const char* KvTypeName(KvType type);
absl::StatusOr<KvType> ParseKvType(const std::string& name);

constexpr uint32_t kMaxBlockSize = 256;

struct KvLayout {
  uint32_t block_size = 16;  // tokens a block holds, 1 to kMaxBlockSize
  uint32_t layer_count = 0;
  uint32_t kv_head_count = 0;
  uint32_t head_dim = 0;
  KvType kv_type = KvType::kF16;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;

  // InvalidArgument naming the field, its value and the limit.
  absl::Status Validate() const;

  constexpr uint32_t BlocksFor(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + block_size - 1) / block_size);
  }
  constexpr uint32_t BlockIndex(uint64_t position) const {
    return static_cast<uint32_t>(position / block_size);
  }
  constexpr uint32_t Offset(uint64_t position) const {
    return static_cast<uint32_t>(position % block_size);
  }

  constexpr size_t element_bytes() const { return 2; }
  // Bytes of one token over all layers, K and V.
  constexpr size_t bytes_per_token() const {
    return size_t{2} * layer_count * kv_head_count * head_dim * element_bytes();
  }
  constexpr size_t bytes_per_block() const { return bytes_per_token() * block_size; }
  // Bytes of one block within one layer.
  constexpr size_t bytes_per_layer_block() const { return bytes_per_block() / layer_count; }

  // The same on both sides of the handshake iff every field is.
  uint64_t Fingerprint() const;
};

}  // namespace octavo
