#pragma once

// Threads that run command lists, one list after the other, one command after the other, each
// command's items stolen in shrinking chunks from a shared counter. A command is finished when its
// items are, not when every thread has come by: a thread that lost its core delays nobody unless it
// holds items.
//
// Waiting is bounded spinning, then a futex; where threads outnumber cores there is no spinning,
// since it would take the core from the one who works. Every thread runs with FlushDenormals
// (kernels/fp_env.h).
//
// Thread rule: Submit, Wait and Run by one thread at a time; WaitFinished by any.

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "worker/device/command_list.h"

namespace octavo {

// Lists a pool holds at a time, submitted and not yet left by all threads.
constexpr uint32_t kMaxQueuedLists = 8;

class ThreadPool {
 public:
  // `cores`: how many of them can run at a time. REQUIRES: thread_count >= 1.
  ThreadPool(uint32_t thread_count, uint32_t cores);
  // Waits for what was submitted.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t thread_count() const { return static_cast<uint32_t>(threads_.size()); }

  // Runs the list after those submitted before. It is borrowed until WaitReleased. REQUIRES: at
  // most kMaxQueuedLists at a time.
  void Submit(CommandList& list);
  // Until every command of the list is done. Returns at once for a list never submitted.
  static void WaitFinished(CommandList& list);
  // Until no thread looks at the list any more: it may be cleared and recorded again.
  static void WaitReleased(CommandList& list);

  // run(begin, end, thread) over [0, item_count), for set-up work. Waits.
  template <typename F>
  void Run(int64_t item_count, const F& run) {
    CommandList list;
    list.Add(item_count, run);
    Submit(list);
    WaitReleased(list);
  }

 private:
  void Loop(uint32_t thread);
  void RunList(CommandList& list, uint32_t thread);
  void Finish(CommandList::Command& command, int64_t items);
  // Spins, then sleeps, until ready() holds. `word` changes, with a notify, whenever ready() may
  // have become true.
  template <typename Ready>
  void WaitUntil(const std::atomic<uint32_t>& word, const Ready& ready) const;

  alignas(64) std::atomic<uint32_t> submitted_{0};  // lists ever submitted, modulo 2^32
  bool spins_;
  std::atomic<uint64_t> stop_at_{UINT64_MAX};  // the list that never comes
  std::vector<std::thread> threads_;
  std::array<std::atomic<CommandList*>, kMaxQueuedLists> queue_{};
  alignas(64) std::atomic<uint32_t> progress_{0};  // commands ever finished, modulo 2^32
};

}  // namespace octavo
