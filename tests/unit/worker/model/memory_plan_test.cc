#include "worker/model/memory_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

// SmolLM2-135M: 23,040 bytes a token.
constexpr KvLayout kLayout{.block_size = 16, .layer_count = 30, .kv_head_count = 3, .head_dim = 64};

TEST(MemoryPlanTest, TheDefaultPoolIsAQuarterOfWhatIsLeftUpToFourGib) {
  const MemoryPlan small =
      MakeMemoryPlan({.activation_bytes = kGib, .available_bytes = 9 * kGib}, kLayout);
  EXPECT_EQ(small.available_bytes, 8 * kGib);
  EXPECT_EQ(small.bytes_per_block, 368'640u);
  EXPECT_EQ(small.max_blocks, 8 * kGib / 368'640);
  EXPECT_EQ(small.default_blocks, 2 * kGib / 368'640);
  const MemoryPlan large = MakeMemoryPlan({.available_bytes = 100 * kGib}, kLayout);
  EXPECT_EQ(large.default_blocks, 4 * kGib / 368'640);
}

TEST(MemoryPlanTest, ActivationsAboveWhatIsAvailableLeaveNothing) {
  const MemoryPlan plan =
      MakeMemoryPlan({.activation_bytes = 2 * kGib, .available_bytes = kGib}, kLayout);
  EXPECT_EQ(plan.available_bytes, 0u);
  EXPECT_EQ(plan.max_blocks, 0u);
  EXPECT_EQ(ChooseBlockCount(plan, kLayout, 0).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(MemoryPlanTest, AnExplicitPoolIsTakenUpToTheLastBlockThatFits) {
  const MemoryPlan plan = MakeMemoryPlan({.available_bytes = kGib}, kLayout);
  EXPECT_EQ(*ChooseBlockCount(plan, kLayout, 0), plan.default_blocks);
  EXPECT_EQ(*ChooseBlockCount(plan, kLayout, 1), 1u);
  EXPECT_EQ(*ChooseBlockCount(plan, kLayout, plan.max_blocks), plan.max_blocks);
}

TEST(MemoryPlanTest, APoolThatDoesNotFitIsRefusedWithTheNumbers) {
  const MemoryPlan plan = MakeMemoryPlan({.available_bytes = kGib}, kLayout);
  const absl::Status status = ChooseBlockCount(plan, kLayout, 2913).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("num_blocks is 2913"),
                             testing::HasSubstr("1073848320 bytes"),
                             testing::HasSubstr("1073741824 bytes are left"),
                             testing::HasSubstr("2912 blocks")));
}

TEST(MemoryPlanTest, TheDescriptionNamesEveryPart) {
  MemoryPlan plan{.weight_bytes = 64 << 20,
                  .file_backed_bytes = 32 << 20,
                  .activation_bytes = 16 << 20,
                  .bytes_per_block = 4096,
                  .available_bytes = 8 << 20,
                  .max_blocks = 2048,
                  .default_blocks = 512};
  EXPECT_EQ(plan.Describe(kLayout),
            "weights 64.0 MiB repacked and 32.0 MiB in place, activations up to 16.0 MiB, 8.0 MiB "
            "left for the pool: "
            "512 blocks of 16 tokens (4096 bytes each) by default, at most 2048");
}

}  // namespace
}  // namespace octavo
