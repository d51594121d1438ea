#include <memory>

#include "gtest/gtest.h"
#include "worker/device/cpu_backend.h"

namespace octavo {
namespace {

// A worker starts replicas for as long as it lives, each with a pool of its own.
TEST(KvPoolTest, APoolThatIsGoneLeavesItsPlaceToTheNext) {
  const std::unique_ptr<Backend> backend = CreateCpuBackend({.threads = 1}).value();
  const KvLayout layout{.block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 16};
  const KvPoolId first = backend->CreateKvPool(layout, 2).value();
  const KvPoolId second = backend->CreateKvPool(layout, 3).value();
  EXPECT_NE(first.value(), second.value());
  const uint64_t bytes = backend->Memory().kv_bytes;
  for (int i = 0; i < 10; ++i) {
    backend->DestroyKvPool(first);
    EXPECT_EQ(backend->CreateKvPool(layout, 2).value().value(), first.value());
    EXPECT_EQ(backend->Memory().kv_bytes, bytes);
  }
}

}  // namespace
}  // namespace octavo
