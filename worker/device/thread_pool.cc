#include "worker/device/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "glog/logging.h"
#include "kernels/fp_env.h"

namespace octavo {
namespace {

constexpr std::chrono::microseconds kSpin(20);
// A chunk is this part of the items left, divided by the threads: large first, so that the counter
// is rarely touched, small at the end, so that all finish together.
constexpr int64_t kChunkDivisor = 2;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(uint32_t thread_count, uint32_t cores) : spins_(thread_count <= cores) {
  CHECK_GE(thread_count, 1u);
  threads_.reserve(thread_count);
  for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

ThreadPool::~ThreadPool() {
  stop_at_.store(submitted_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  submitted_.fetch_add(1, std::memory_order_release);
  submitted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Submit(CommandList& list) {
  CHECK_EQ(list.visitors_left_.load(std::memory_order_acquire), 0u) << "submitted twice";
  list.visitors_left_.store(thread_count(), std::memory_order_relaxed);
  list.finished_.store(list.size_ == 0 ? 1 : 0, std::memory_order_relaxed);
  std::atomic<CommandList*>& slot =
      queue_[submitted_.load(std::memory_order_relaxed) % kMaxQueuedLists];
  CommandList* before = slot.load(std::memory_order_acquire);
  CHECK(before == nullptr) << "more than " << kMaxQueuedLists << " lists in flight";
  slot.store(&list, std::memory_order_relaxed);
  submitted_.fetch_add(1, std::memory_order_release);
  submitted_.notify_all();
}

void ThreadPool::WaitFinished(CommandList& list) {
  while (list.finished_.load(std::memory_order_acquire) == 0)
    list.finished_.wait(0, std::memory_order_acquire);
}

void ThreadPool::WaitReleased(CommandList& list) {
  for (uint32_t left; (left = list.visitors_left_.load(std::memory_order_acquire)) != 0;) {
    list.visitors_left_.wait(left, std::memory_order_acquire);
  }
}

template <typename Ready>
void ThreadPool::WaitUntil(const std::atomic<uint32_t>& word, const Ready& ready) const {
  if (ready()) return;
  if (spins_) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        Pause();
        if (ready()) return;
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  while (true) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (ready()) return;
    word.wait(seen, std::memory_order_acquire);
  }
}

void ThreadPool::Loop(uint32_t thread) {
  const kernels::FlushDenormals flush;
  for (uint32_t sequence = 0;; ++sequence) {
    WaitUntil(submitted_, [&] { return submitted_.load(std::memory_order_acquire) != sequence; });
    if (stop_at_.load(std::memory_order_relaxed) == sequence) return;
    std::atomic<CommandList*>& slot = queue_[sequence % kMaxQueuedLists];
    CommandList* list = slot.load(std::memory_order_relaxed);
    RunList(*list, thread);
    // The last one out frees the queue's slot first: once nobody is left, the list belongs to its
    // owner again.
    uint32_t left = list->visitors_left_.load(std::memory_order_acquire);
    while (true) {
      if (left == 1) slot.store(nullptr, std::memory_order_release);
      if (list->visitors_left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel))
        break;
    }
    // The owner may destroy the list as soon as it reads 0; a notify by address is then no more
    // than a spurious one.
    if (left == 1) list->visitors_left_.notify_all();
  }
}

void ThreadPool::RunList(CommandList& list, uint32_t thread) {
  const int64_t divisor = kChunkDivisor * thread_count();
  for (size_t i = 0; i < list.size_; ++i) {
    CommandList::Command& command = list.commands_[i];
    int64_t next = command.next.load(std::memory_order_relaxed);
    while (next < command.item_count) {
      const int64_t take = std::max<int64_t>(1, (command.item_count - next) / divisor);
      if (!command.next.compare_exchange_weak(next, next + take, std::memory_order_relaxed))
        continue;
      command.run(command.closure, next, next + take, thread);
      Finish(command, take);
      next = command.next.load(std::memory_order_relaxed);
    }
    WaitUntil(progress_,
              [&] { return command.done.load(std::memory_order_acquire) == command.item_count; });
  }
  if (list.finished_.exchange(1, std::memory_order_acq_rel) == 0) list.finished_.notify_all();
}

void ThreadPool::Finish(CommandList::Command& command, int64_t items) {
  if (command.done.fetch_add(items, std::memory_order_acq_rel) + items != command.item_count)
    return;
  progress_.fetch_add(1, std::memory_order_acq_rel);
  progress_.notify_all();
}

}  // namespace octavo
