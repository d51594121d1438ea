#include "kernels/copy_blocks.h"

#include <cstring>

namespace octavo::kernels {
namespace {

// One (layer, K or V, head) plane of the pool.
struct Plane {
  const CopyBlocksArgs& args;
  KvPages pages;
  bool values = false;
  int64_t kv_head = 0;

  Plane(const CopyBlocksArgs& all, int64_t item) : args(all), pages(all.pages) {
    const int64_t heads = all.pages.kv_head_count;
    pages.base = all.layer_bases[item / (2 * heads)];
    values = item / heads % 2 == 1;
    kv_head = item % heads;
  }
  uint16_t* Slots(uint32_t block) const {
    return values ? pages.Values(block, kv_head) : pages.Keys(block, kv_head);
  }
  size_t Bytes(const SlotCopy& copy) const {
    return static_cast<size_t>(copy.token_count * pages.head_dim) * sizeof(uint16_t);
  }
};

int64_t ScratchElementsPerPlane(const CopyBlocksArgs& args) {
  return args.copy_count * args.pages.head_stride();
}

}  // namespace

bool CopiesAreIndependent(const CopyBlocksArgs& args) {
  for (int64_t i = 0; i < args.copy_count; ++i) {
    for (int64_t j = 0; j < args.copy_count; ++j) {
      if (args.copies[i].destination == args.copies[j].source) return false;
    }
  }
  return true;
}

size_t CopyBlocksScratchBytes(const CopyBlocksArgs& args) {
  return static_cast<size_t>(CopyBlocksWorkCount(args) * ScratchElementsPerPlane(args)) *
         sizeof(uint16_t);
}

void CopyBlocks(const CopyBlocksArgs& args, WorkRange planes) {
  for (int64_t item = planes.begin; item < planes.end; ++item) {
    const Plane plane(args, item);
    if (args.scratch == nullptr) {
      for (int64_t i = 0; i < args.copy_count; ++i) {
        const SlotCopy& copy = args.copies[i];
        std::memcpy(plane.Slots(copy.destination), plane.Slots(copy.source), plane.Bytes(copy));
      }
      continue;
    }
    uint16_t* saved = args.scratch + item * ScratchElementsPerPlane(args);
    for (int64_t i = 0; i < args.copy_count; ++i) {
      const SlotCopy& copy = args.copies[i];
      std::memcpy(saved + i * args.pages.head_stride(), plane.Slots(copy.source),
                  plane.Bytes(copy));
    }
    for (int64_t i = 0; i < args.copy_count; ++i) {
      const SlotCopy& copy = args.copies[i];
      std::memcpy(plane.Slots(copy.destination), saved + i * args.pages.head_stride(),
                  plane.Bytes(copy));
    }
  }
}

}  // namespace octavo::kernels
