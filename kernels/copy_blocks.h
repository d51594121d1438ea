#pragma once

// Copy-on-write: the first `token_count` slots of one block to another, K and V, all heads, all
// layers.
//
// All reads of a call precede all its writes, so a block may be the destination of one copy and the
// source of another. A work item moves one (layer, K or V, head) plane of every copy, and planes
// share no byte, so the rule need only hold within an item: with `scratch` the item reads all its
// sources into its part of it, then writes all destinations. Without scratch it copies one pair
// after the other, which is the same thing if no destination is a source: CopiesAreIndependent.

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/kv_pages.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct SlotCopy {
  uint32_t source = 0;  // block ids
  uint32_t destination = 0;
  uint32_t token_count = 0;  // <= block_size

  friend bool operator==(const SlotCopy&, const SlotCopy&) = default;
};

struct CopyBlocksArgs {
  KvPages pages;                           // geometry; `base` is not used
  uint16_t* const* layer_bases = nullptr;  // [layer_count] KvPages::base of each layer
  int64_t layer_count = 0;
  const SlotCopy* copies = nullptr;  // [copy_count]; REQUIRES: destinations differ
  int64_t copy_count = 0;
  uint16_t* scratch = nullptr;  // CopyBlocksScratchBytes(args) bytes, or null; REQUIRES: not null
                                // unless CopiesAreIndependent
};

// No destination of a copy is the source of another (or its own). O(copy_count^2).
bool CopiesAreIndependent(const CopyBlocksArgs& args);
size_t CopyBlocksScratchBytes(const CopyBlocksArgs& args);

// Work items are (layer, K or V, head) planes; none if there is nothing to copy.
inline int64_t CopyBlocksWorkCount(const CopyBlocksArgs& args) {
  return args.copy_count == 0 ? 0 : args.layer_count * 2 * args.pages.kv_head_count;
}
// One implementation: it moves bytes.
void CopyBlocks(const CopyBlocksArgs& args, WorkRange planes);

}  // namespace octavo::kernels
