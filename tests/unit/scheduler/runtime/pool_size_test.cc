#include "scheduler/runtime/pool_size.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMib = uint64_t{1} << 20;

// 100 MiB, of which 20 are weights (5 of them in place) and 4 activations. Others use 16: 60 are
// left, for 60 blocks of 1 MiB. By itself the worker takes 15.
MemoryPlan Plan() {
  return {.total_bytes = 100 * kMib,
          .weight_bytes = 15 * kMib,
          .file_backed_bytes = 5 * kMib,
          .activation_bytes = 4 * kMib,
          .bytes_per_block = kMib,
          .pool_bytes = 15 * kMib,
          .block_count = 15,
          .max_block_count = 60};
}

absl::StatusOr<uint32_t> Choose(const PoolSize& size, uint32_t max_blocks = kMaxPoolBlocks) {
  return ChooseBlockCount(size, Plan(), max_blocks);
}

std::string Complaint(const PoolSize& size, uint32_t max_blocks = kMaxPoolBlocks) {
  const absl::Status status = Choose(size, max_blocks).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  return std::string(status.message());
}

TEST(PoolSizeTest, TakesWhatTheWorkerWouldUnlessTold) {
  EXPECT_EQ(*Choose({}), 15u);
  EXPECT_EQ(*Choose({}, /*max_blocks=*/10), 10u);
}

TEST(PoolSizeTest, CountsWholeBlocksInBytesOrInAShareOfTheMemory) {
  EXPECT_EQ(*Choose({.block_count = 7}), 7u);
  EXPECT_EQ(*Choose({.kv_memory_bytes = 8 * kMib - 1}), 7u);
  EXPECT_EQ(*Choose({.kv_memory_bytes = 8 * kMib}), 8u);
  // Half of 100 MiB less weights and activations, 24.
  EXPECT_EQ(*Choose({.memory_utilization = 0.5}), 26u);
  EXPECT_EQ(*Choose({.memory_utilization = 0.84}), 60u);
}

TEST(PoolSizeTest, RefusesWhatDoesNotFitWithTheNumbersAndTheLargestThatDoes) {
  const auto numbers =
      AllOf(HasSubstr("of 100.00 MiB weights take 15.00 MiB and 5.00 MiB in place"),
            HasSubstr("activations 4.00 MiB"), HasSubstr("a block takes 1048576 bytes"),
            HasSubstr("at most 60 blocks, 60.00 MiB"));
  EXPECT_THAT(Complaint({.block_count = 61}),
              AllOf(HasSubstr("--num_blocks=61 does not fit: 61 blocks are 61.00 MiB"), numbers,
                    HasSubstr("lower it to --num_blocks=60")));
  EXPECT_THAT(Complaint({.kv_memory_bytes = 61 * kMib}),
              AllOf(HasSubstr("--kv_memory=63963136 does not fit"), numbers,
                    HasSubstr("lower it to --kv_memory=62914560")));
  EXPECT_THAT(Complaint({.memory_utilization = 0.92}),
              AllOf(HasSubstr("--memory_utilization=0.92 does not fit: 68 blocks"), numbers,
                    HasSubstr("lower it to --memory_utilization=0.840")));
}

TEST(PoolSizeTest, RefusesWhatLeavesNoRoomForABlock) {
  EXPECT_THAT(Complaint({.kv_memory_bytes = kMib - 1}),
              HasSubstr("--kv_memory=1048575 leaves room for no block"));
  EXPECT_THAT(Complaint({.memory_utilization = 0.24}),
              AllOf(HasSubstr("--memory_utilization=0.24 leaves room for no block"),
                    HasSubstr("raise it, up to --memory_utilization=0.840")));
  MemoryPlan full = Plan();
  full.block_count = full.max_block_count = 0;
  for (const PoolSize& size : {PoolSize{}, PoolSize{.block_count = 1}}) {
    EXPECT_THAT(std::string(ChooseBlockCount(size, full, kMaxPoolBlocks).status().message()),
                HasSubstr("no block of KV cache fits"));
  }
}

TEST(PoolSizeTest, RefusesMoreBlocksThanASchedulerKeeps) {
  EXPECT_THAT(Complaint({.memory_utilization = 0.5}, /*max_blocks=*/20),
              AllOf(HasSubstr("makes 26 blocks; a pool may have 20"), HasSubstr("--block_size"),
                    HasSubstr("--memory_utilization=0.440")));
}

// What the complaint names does fit, whatever the figures.
TEST(PoolSizeTest, TheLargestThatFitsIsTakenWhenAskedFor) {
  for (uint64_t total = 100 * kMib; total < 200 * kMib; total += kMib * 7 + 12345) {
    MemoryPlan plan = Plan();
    plan.total_bytes = total;
    const std::string message(
        ChooseBlockCount({.memory_utilization = 1.0}, plan, kMaxPoolBlocks).status().message());
    const size_t at = message.rfind("--memory_utilization=");
    ASSERT_NE(at, std::string::npos) << message;
    const double share = std::stod(message.substr(at + 21));
    EXPECT_TRUE(ChooseBlockCount({.memory_utilization = share}, plan, kMaxPoolBlocks).ok())
        << message;
  }
}

TEST(PoolSizeTest, AWorkersNonsenseIsRefused) {
  MemoryPlan plan = Plan();
  plan.bytes_per_block = 0;
  EXPECT_EQ(ChooseBlockCount({.kv_memory_bytes = kMib}, plan, kMaxPoolBlocks).status().code(),
            absl::StatusCode::kInvalidArgument);
  plan = {.total_bytes = UINT64_MAX, .bytes_per_block = 1, .max_block_count = UINT32_MAX};
  EXPECT_EQ(ChooseBlockCount({.memory_utilization = 1.0}, plan, kMaxPoolBlocks).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PoolSizeTest, APlanSaysWhatThePoolHolds) {
  const PoolSize size{.block_count = 33};
  const KvLayout layout{.block_size = 16, .layer_count = 1, .kv_head_count = 1, .head_dim = 1};
  const PoolPlan pool = MakePoolPlan(size, Plan(), 33, layout, /*context_length=*/100,
                                     /*max_sequences=*/256);
  EXPECT_EQ(pool, (PoolPlan{.block_count = 33,
                            .pool_bytes = 33 * kMib,
                            .token_count = 528,
                            .full_length_tokens = 100,
                            .full_length_requests = 4,  // of 7 blocks
                            .full_length_concurrency = 33.0 / 7,
                            .sized_by = "--num_blocks=33"}));
  EXPECT_EQ(MakePoolPlan(size, Plan(), 33, layout, 100, 3).full_length_requests, 3u);
  EXPECT_EQ(
      DescribeMemory(Plan(), pool, layout),
      "weights 15.00 MiB and 5.00 MiB in place, activations 4.00 MiB, pool 33.00 MiB "
      "(--num_blocks=33): 33 blocks of 16, 528 tokens, 4.71 requests at once of 100 tokens; at "
      "most 60 blocks fit");
}

const KvLayout kLayout{.block_size = 16, .layer_count = 1, .kv_head_count = 1, .head_dim = 1};

PoolPlan PlanOf(uint32_t block_count, uint32_t context_length) {
  return MakePoolPlan({.block_count = block_count}, Plan(), block_count, kLayout, context_length,
                      /*max_sequences=*/256);
}

// Row 68 of the published scenarios.
TEST(PoolSizeTest, ConcurrencyAtFullLengthCountsPartsOfARequest) {
  const PoolPlan pool = PlanOf(1536, 16'384);
  EXPECT_EQ(pool.full_length_concurrency, 1.5);
  EXPECT_EQ(pool.full_length_requests, 1u);
  EXPECT_EQ(PlanOf(1023, 16'384).full_length_concurrency, 1.0);  // what the pool holds, once
  // Not bounded by max_sequences: the blocks alone.
  EXPECT_EQ(MakePoolPlan({}, Plan(), 1536, kLayout, 16, 2).full_length_concurrency, 1536);
}

// Row 67: a length that was asked for is refused, the model's own is fitted.
TEST(PoolSizeTest, ALengthThatThePoolCannotHoldIsRefusedIfAskedForAndElseFitted) {
  const PoolPlan pool = PlanOf(32, 16'384);
  EXPECT_EQ(pool.full_length_tokens, 512u);
  EXPECT_EQ(pool.full_length_requests, 1u);
  MemoryPlan memory = Plan();
  memory.max_block_count = 1024;
  const absl::Status refused = CheckHoldsOne(pool, memory, kLayout, 16'384);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "--context_length=16384 takes 1024 blocks of 16; the pool (--num_blocks=32) has 32, "
            "and at most 1024 fit: lower it to --context_length=512, or make a pool of "
            "--num_blocks=1024");
  // What the complaint names fits, and one token more does not.
  EXPECT_TRUE(CheckHoldsOne(pool, memory, kLayout, 512).ok());
  EXPECT_FALSE(CheckHoldsOne(pool, memory, kLayout, 513).ok());
  EXPECT_TRUE(CheckHoldsOne(PlanOf(1024, 16'384), memory, kLayout, 16'384).ok());
  // No pool is proposed that the memory does not hold.
  memory.max_block_count = 1023;
  EXPECT_THAT(std::string(CheckHoldsOne(pool, memory, kLayout, 16'384).message()),
              testing::EndsWith("lower it to --context_length=512"));
}

}  // namespace
}  // namespace octavo
