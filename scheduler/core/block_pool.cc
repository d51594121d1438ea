#include "scheduler/core/block_pool.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace octavo {

FreeQueue::FreeQueue(uint32_t capacity) : links_(size_t{capacity} + 1, Link{kOut, kOut}) {
  links_[capacity] = {capacity, capacity};
}

void FreeQueue::InsertBefore(uint32_t position, uint32_t block) {
  CHECK_EQ(links_[block].next, kOut) << "block " << block << " is in the free queue already";
  const uint32_t previous = links_[position].previous;
  links_[block] = {previous, position};
  links_[previous].next = block;
  links_[position].previous = block;
  ++size_;
}

BlockId FreeQueue::PopFront() {
  CHECK_GT(size_, 0u) << "the free queue is empty";
  const BlockId block = Front();
  Remove(block);
  return block;
}

void FreeQueue::PushFront(BlockId block) { InsertBefore(links_[sentinel()].next, block.value()); }

void FreeQueue::PushBack(BlockId block) { InsertBefore(sentinel(), block.value()); }

void FreeQueue::Remove(BlockId block) {
  Link& link = links_[block.value()];
  CHECK_NE(link.next, kOut) << "block " << block << " is not in the free queue";
  links_[link.previous].next = link.next;
  links_[link.next].previous = link.previous;
  link = {kOut, kOut};
  --size_;
}

BlockPool::BlockPool(uint32_t capacity) : blocks_(capacity), queue_(capacity) {
  for (uint32_t block = 0; block < capacity; ++block) queue_.PushBack(BlockId(block));
}

BlockState BlockPool::state(BlockId block) const {
  const Block& it = blocks_[block.value()];
  if (it.references > 0) return BlockState::kHeld;
  return it.has_prefix ? BlockState::kCached : BlockState::kFree;
}

BlockPool::Taken BlockPool::Take() {
  const BlockId id = queue_.PopFront();
  Block& block = blocks_[id.value()];
  const bool evicted = block.has_prefix;
  if (evicted) --cached_count_;
  block = {.references = 1, .has_prefix = false};
  return {id, evicted};
}

void BlockPool::TakeFree(BlockId id) {
  CHECK(state(id) == BlockState::kFree) << "block " << id << " is not free";
  queue_.Remove(id);
  blocks_[id.value()].references = 1;
}

void BlockPool::AddReference(BlockId id) {
  Block& block = blocks_[id.value()];
  if (block.references == 0) {
    CHECK(block.has_prefix) << "block " << id << " is free: there is nothing in it to share";
    queue_.Remove(id);
    --cached_count_;
  }
  shared_count_ += ++block.references == 2;
}

void BlockPool::Release(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    Block& block = blocks_[id.value()];
    CHECK_GT(reference_count(id), 0u)
        << "block " << id << " is released more often than it was taken";
    --block.references;
    shared_count_ -= block.references == 1;
    if (block.references == 0 && block.has_prefix) {
      queue_.PushBack(id);
      ++cached_count_;
    }
  }
  for (auto id = blocks.rbegin(); id != blocks.rend(); ++id) {
    const Block& block = blocks_[id->value()];
    if (block.references == 0 && !block.has_prefix) queue_.PushFront(*id);
  }
}

void BlockPool::MarkPrefix(BlockId id) {
  CHECK_GT(reference_count(id), 0u) << "block " << id << " is not held";
  blocks_[id.value()].has_prefix = true;
}

void BlockPool::ClearPrefix(BlockId id) {
  Block& block = blocks_[id.value()];
  CHECK(block.has_prefix) << "block " << id << " has no prefix";
  block.has_prefix = false;
  if (block.references > 0) return;
  --cached_count_;
  queue_.Remove(id);
  queue_.PushFront(id);
}

void BlockPool::ClearPrefixes() {
  CHECK_EQ(held_count(), 0u) << "held blocks keep their prefixes";
  for (Block& block : blocks_) block.has_prefix = false;
  cached_count_ = 0;
}

absl::Status BlockPool::CheckInvariants() const {
  uint32_t held = 0;
  uint32_t cached = 0;
  uint32_t shared = 0;
  for (uint32_t i = 0; i < capacity(); ++i) {
    const BlockId id(i);
    const bool is_held = state(id) == BlockState::kHeld;
    held += is_held;
    cached += state(id) == BlockState::kCached;
    shared += reference_count(id) > 1;
    if (queue_.Contains(id) == is_held) {
      return absl::InternalError(absl::StrCat("block ", i, " has reference count ",
                                              reference_count(id), " and is ",
                                              is_held ? "in" : "not in", " the free queue"));
    }
  }
  uint32_t walked = 0;
  for (BlockId id = queue_.Front(); id != queue_.end() && walked <= capacity();
       id = queue_.Next(id)) {
    ++walked;
  }
  if (walked != queue_.size() || held != held_count() || cached != cached_count_ ||
      shared != shared_count_) {
    return absl::InternalError(
        absl::StrCat("pool counts disagree: queue ", queue_.size(), " (walked ", walked, "), held ",
                     held_count(), " (counted ", held, "), cached ", cached_count_, " (counted ",
                     cached, "), shared ", shared_count_, " (counted ", shared, ")"));
  }
  return absl::OkStatus();
}

}  // namespace octavo
