#pragma once

// Ops of one step in the order they were recorded: each a number of independent work items and a
// function over a range of them. Closures lie in an arena that keeps its memory from step to step,
// so that recording allocates nothing once it is warm.
//
// Thread rule: recorded by one thread while no pool runs it; run by the threads of a ThreadPool.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace octavo {

// Memory for trivially destructible values, given back all at once.
class Arena {
 public:
  template <typename T>
  T* New(const T& value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (Allocate(sizeof(T), alignof(T))) T(value);
  }
  template <typename T>
  T* NewArray(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (Allocate(sizeof(T) * count, alignof(T))) T[count]();
  }
  // Everything allocated is gone; its memory is used again.
  void Reset();

 private:
  static constexpr size_t kChunkBytes = 1 << 16;
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    size_t size = 0;
  };
  void* Allocate(size_t bytes, size_t alignment);

  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;  // the one in use
  size_t used_ = 0;   // bytes of it
};

class CommandList {
 public:
  // run(begin, end, thread) computes items [begin, end), 0 <= begin < end <= item_count, on pool
  // thread `thread`. Disjoint ranges may run at the same time. A command with no items is dropped.
  template <typename F>
  void Add(int64_t item_count, const F& run) {
    if (item_count <= 0) return;
    Command& command = Append();
    command.item_count = item_count;
    command.closure = arena_.New(run);
    command.run = [](const void* closure, int64_t begin, int64_t end, uint32_t thread) {
      (*static_cast<const F*>(closure))(begin, end, thread);
    };
  }

  void Clear();
  size_t size() const { return size_; }
  Arena& arena() { return arena_; }

 private:
  friend class ThreadPool;

  struct alignas(64) Command {
    void (*run)(const void* closure, int64_t begin, int64_t end, uint32_t thread) = nullptr;
    const void* closure = nullptr;
    int64_t item_count = 0;
    std::atomic<int64_t> next{0};  // first item that nobody took
    std::atomic<int64_t> done{0};  // items that are finished
  };
  Command& Append();

  std::deque<Command> commands_;  // the first size_ are in use
  size_t size_ = 0;
  Arena arena_;
  std::atomic<uint32_t> visitors_left_{0};  // pool threads that may still look at it
  std::atomic<uint32_t> finished_{1};       // 1 when every command is done
};

}  // namespace octavo
