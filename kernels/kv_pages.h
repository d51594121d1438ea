#pragma once

// One layer's share of the paged KV cache, as a by-value view. Block ids, slots and positions are
// the caller's (scheduler and worker/model/kv_cache.h); here is only where a slot's bytes lie.

#include <cstddef>
#include <cstdint>

namespace octavo::kernels {

// How K and V are stored; the order of octavo::KvType (common/kv_layout.h).
enum class KvElement : uint8_t { kF16, kBF16 };

struct KvPages {
  uint16_t* base = nullptr;  // [block][K|V][kv_head_count][block_size][head_dim]
  KvElement element = KvElement::kF16;
  int64_t block_size = 0;     // slots of a block, 1 to 256
  int64_t kv_head_count = 0;  // of this rank
  int64_t head_dim = 0;       // a multiple of 16, at most 256

  // Elements from one head's slots to the next head's, from K to V of a block, and from one block
  // to the next.
  int64_t head_stride() const { return block_size * head_dim; }
  int64_t plane_stride() const { return kv_head_count * head_stride(); }
  int64_t block_stride() const { return 2 * plane_stride(); }

  // [block_size, head_dim] keys, or values, of one head in one block.
  uint16_t* Keys(int64_t block, int64_t kv_head) const {
    return base + block * block_stride() + kv_head * head_stride();
  }
  uint16_t* Values(int64_t block, int64_t kv_head) const {
    return Keys(block, kv_head) + plane_stride();
  }
};

// The rows of a step as the cache sees them: which sequence, which absolute position, and every
// sequence's block table.
struct KvRows {
  int64_t row_count = 0;
  const int32_t* sequences = nullptr;      // [row_count] index of the row's sequence in this step
  const int32_t* positions = nullptr;      // [row_count] absolute position of the row's token
  const uint32_t* block_tables = nullptr;  // all tables, one after the other: block ids in order
  const int64_t* table_offsets =
      nullptr;  // [sequence_count] where each table begins in `block_tables`
};

}  // namespace octavo::kernels
