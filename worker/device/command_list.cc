#include "worker/device/command_list.h"

#include <algorithm>

#include "glog/logging.h"

namespace octavo {

void Arena::Reset() {
  chunk_ = 0;
  used_ = 0;
}

void* Arena::Allocate(size_t bytes, size_t alignment) {
  while (true) {
    if (chunk_ == chunks_.size()) {
      const size_t size = std::max(kChunkBytes, bytes + alignment);
      chunks_.push_back({std::make_unique<std::byte[]>(size), size});
    }
    Chunk& chunk = chunks_[chunk_];
    void* at = chunk.bytes.get() + used_;
    size_t space = chunk.size - used_;
    if (std::align(alignment, bytes, at, space) != nullptr) {
      used_ = static_cast<size_t>(static_cast<std::byte*>(at) - chunk.bytes.get()) + bytes;
      return at;
    }
    ++chunk_;
    used_ = 0;
  }
}

CommandList::Command& CommandList::Append() {
  if (size_ == commands_.size()) commands_.emplace_back();
  Command& command = commands_[size_++];
  command.next.store(0, std::memory_order_relaxed);
  command.done.store(0, std::memory_order_relaxed);
  return command;
}

void CommandList::Clear() {
  CHECK_EQ(visitors_left_.load(std::memory_order_acquire), 0u) << "cleared while a pool runs it";
  size_ = 0;
  arena_.Reset();
}

}  // namespace octavo
