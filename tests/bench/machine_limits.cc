#include "tests/bench/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "kernels/isa.h"
#include "tests/bench/machine_limits_avx2.h"

namespace octavo::bench {
namespace {

std::atomic<uint64_t> sink;

uint64_t ReadAllPlain(const uint8_t* begin, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, begin + i, sizeof(word));
    sum ^= word;
  }
  return sum;
}

}  // namespace

double BestSeconds(int threads, int repeats, const std::function<void(int)>& body) {
  std::atomic<int> phase{0}, done{0};
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      for (int next = 1; next <= repeats; ++next) {
        while (phase.load(std::memory_order_acquire) < next) {
        }
        body(t);
        done.fetch_add(1, std::memory_order_release);
      }
    });
  }
  double best = 1e30;
  for (int i = 1; i <= repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    done.store(0, std::memory_order_relaxed);
    phase.store(i, std::memory_order_release);
    body(0);
    while (done.load(std::memory_order_acquire) < threads - 1) {
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  for (std::thread& other : others) other.join();
  return best;
}

double ReadBandwidth(size_t bytes, int threads) {
  const size_t share = bytes / static_cast<size_t>(threads) / 4096 * 4096;
  const size_t total = share * static_cast<size_t>(threads);
  auto* buffer = static_cast<uint8_t*>(::operator new(total, std::align_val_t{4096}));
  std::memset(buffer, 1, total);
  const auto read = kernels::DetectIsa() >= kernels::Isa::kAvx2 ? &ReadAll : &ReadAllPlain;
  const double seconds = BestSeconds(threads, 9, [&](int thread) {
    sink += read(buffer + static_cast<size_t>(thread) * share, share);
  });
  ::operator delete(buffer, std::align_val_t{4096});
  return static_cast<double>(total) / seconds;
}

double Int16MultiplyPeak(int threads) {
  if (kernels::DetectIsa() < kernels::Isa::kAvx2) return 0;
  constexpr int64_t kRounds = 100'000;
  const double seconds = BestSeconds(threads, 49, [](int) { sink += MultiplyPairs(kRounds); });
  return static_cast<double>(kRounds * kOperationsPerRound) * threads / seconds;
}

double FloatMultiplyPeak(int threads) {
  if (kernels::DetectIsa() < kernels::Isa::kAvx2) return 0;
  constexpr int64_t kRounds = 100'000;
  const double seconds =
      BestSeconds(threads, 49, [](int) { sink += FuseMultiplyAdditions(kRounds); });
  return static_cast<double>(kRounds * kFloatOperationsPerRound) * threads / seconds;
}

}  // namespace octavo::bench
