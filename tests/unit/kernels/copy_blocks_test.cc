#include "kernels/copy_blocks.h"

#include <gtest/gtest.h>

#include "op_fixtures.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kLayers = 3;
constexpr int64_t kBlocks = 8;

struct Pool {
  KvPages shape;
  std::vector<std::vector<uint16_t>> layers;

  explicit Pool(KvPages pages) : shape(pages) {
    uint16_t next = 0;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      layers.emplace_back(static_cast<size_t>(kBlocks * shape.block_stride()));
      for (uint16_t& x : layers.back()) x = next++;
    }
  }

  // [block][K|V][kv_head][block_size][head_dim], written out independently of KvPages.
  size_t Index(int64_t block, int64_t which, int64_t head, int64_t slot, int64_t d) const {
    return static_cast<size_t>(
        (((block * 2 + which) * shape.kv_head_count + head) * shape.block_size + slot) *
            shape.head_dim +
        d);
  }
};

// What the copies must leave: every destination slot from the pool as it was.
std::vector<std::vector<uint16_t>> Expected(const Pool& before,
                                            const std::vector<SlotCopy>& copies) {
  std::vector<std::vector<uint16_t>> after = before.layers;
  for (size_t layer = 0; layer < after.size(); ++layer) {
    for (const SlotCopy& copy : copies) {
      for (int64_t which = 0; which < 2; ++which) {
        for (int64_t head = 0; head < before.shape.kv_head_count; ++head) {
          for (int64_t slot = 0; slot < copy.token_count; ++slot) {
            for (int64_t d = 0; d < before.shape.head_dim; ++d) {
              after[layer][before.Index(copy.destination, which, head, slot, d)] =
                  before.layers[layer][before.Index(copy.source, which, head, slot, d)];
            }
          }
        }
      }
    }
  }
  return after;
}

void ExpectCopied(const KvPages& shape, const std::vector<SlotCopy>& copies, bool independent) {
  const Pool before(shape);
  for (const Partition partition : kAllPartitions) {
    for (const bool with_scratch : {true, false}) {
      Pool pool(shape);
      std::vector<uint16_t*> bases;
      for (auto& layer : pool.layers) bases.push_back(layer.data());
      CopyBlocksArgs args{.pages = shape,
                          .layer_bases = bases.data(),
                          .layer_count = kLayers,
                          .copies = copies.data(),
                          .copy_count = static_cast<int64_t>(copies.size())};
      EXPECT_EQ(CopiesAreIndependent(args), independent);
      if (!with_scratch && !independent) continue;
      std::vector<uint16_t> scratch(CopyBlocksScratchBytes(args) / sizeof(uint16_t));
      if (with_scratch && !copies.empty()) args.scratch = scratch.data();
      RunOp<CopyBlocksArgs>(CopyBlocks, args, CopyBlocksWorkCount(args), partition);
      EXPECT_EQ(pool.layers, Expected(before, copies));
    }
  }
}

constexpr KvPages kShapes[] = {{nullptr, KvElement::kF16, 16, 3, 64},
                               {nullptr, KvElement::kBF16, 1, 1, 16},
                               {nullptr, KvElement::kF16, 3, 2, 48}};

TEST(CopyBlocksTest, CopiesTheFirstSlotsOfEveryPlane) {
  for (const KvPages& shape : kShapes) {
    const uint32_t full = static_cast<uint32_t>(shape.block_size);
    ExpectCopied(shape, {}, true);
    ExpectCopied(shape, {{0, 5, full}}, true);
    ExpectCopied(shape, {{0, 5, 1}, {0, 6, full}, {7, 1, (full + 1) / 2}, {2, 3, 0}}, true);
  }
}

TEST(CopyBlocksTest, ReadsEverySourceBeforeItWritesAnyDestination) {
  for (const KvPages& shape : kShapes) {
    const uint32_t full = static_cast<uint32_t>(shape.block_size);
    ExpectCopied(shape, {{0, 1, full}, {1, 2, full}, {2, 3, full}}, false);          // a chain
    ExpectCopied(shape, {{4, 5, full}, {5, 4, full}}, false);                        // a swap
    ExpectCopied(shape, {{0, 1, full}, {1, 2, 1}, {2, 0, full}, {7, 6, 1}}, false);  // a cycle
  }
}

}  // namespace
}  // namespace octavo::kernels
