#pragma once

// The plainest model of the KV memory's books: prefixes are strings compared as a whole, the queue
// is searched from the front. Every operation costs time proportional to the pool.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace octavo {

// A scope, then tokens: one character each, so that a prefix is a string and begins another or not.
using Text = std::string;

struct NaiveHit {
  std::vector<uint32_t> blocks;
  uint32_t run_block = 0;
  uint32_t run_tokens = 0;
};

// Blocks are numbers from 0; a table is the list of its blocks.
class NaiveKv {
 public:
  NaiveKv(uint32_t block_count, uint32_t block_size, uint32_t unit)
      : block_size_(block_size), unit_(unit), references_(block_count), text_(block_count) {
    for (uint32_t i = 0; i < block_count; ++i) queue_.push_back(i);
  }

  NaiveHit Find(const Text& all) const {
    NaiveHit hit;
    const Text text = all.substr(0, all.size() - 1);
    size_t depth = 1;  // the scope
    while (depth + block_size_ <= text.size()) {
      const auto it = twins_.find(text.substr(0, depth + block_size_));
      if (it == twins_.end()) break;
      hit.blocks.push_back(it->second.front());
      depth += block_size_;
    }
    if (unit_ >= block_size_) return hit;
    // Of those with the longest run, the first that does not come before `text`, else the last one
    // that does.
    bool is_after = false;
    for (const auto& [known, blocks] : twins_) {
      if (Depth(known) != depth || known.compare(0, depth, text, 0, depth) != 0) continue;
      uint32_t count = 0;
      while (depth + count < std::min(known.size(), text.size()) &&
             known[depth + count] == text[depth + count]) {
        ++count;
      }
      if (count > hit.run_tokens || (count == hit.run_tokens && count > 0 && !is_after)) {
        hit.run_tokens = count;
        hit.run_block = blocks.front();
        is_after = known >= text;
      }
    }
    hit.run_tokens -= hit.run_tokens % unit_;
    return hit;
  }

  uint32_t Take() {
    const uint32_t block = queue_.front();
    queue_.erase(queue_.begin());
    if (!text_[block].empty()) Forget(block);
    references_[block] = 1;
    return block;
  }
  void AddReference(uint32_t block) {
    if (references_[block]++ == 0) queue_.erase(std::find(queue_.begin(), queue_.end(), block));
  }
  void Release(const std::vector<uint32_t>& table) {
    std::vector<uint32_t> head;
    for (auto block = table.rbegin(); block != table.rend(); ++block) {
      if (--references_[*block] > 0) continue;
      if (text_[*block].empty()) {
        head.push_back(*block);
      } else {
        queue_.push_back(*block);
      }
    }
    queue_.insert(queue_.begin(), head.begin(), head.end());
  }
  void Index(uint32_t block, const Text& text) {
    const bool is_leaf = (text.size() - 1) % block_size_ != 0;
    const size_t depth = Depth(text);
    std::optional<uint32_t> covered;
    for (const auto& [known, blocks] : twins_) {
      if (Depth(known) != depth) continue;
      if (is_leaf && known.compare(0, text.size(), text) == 0) return;
      if (known.size() < text.size() && text.compare(0, known.size(), known) == 0) {
        covered = blocks.front();
      }
    }
    auto& twins = twins_[text];
    twins.insert(twins.begin() + (twins.empty() ? 0 : 1), block);
    text_[block] = text;
    if (!covered) return;
    Forget(*covered);
    if (references_[*covered] > 0) return;
    queue_.erase(std::find(queue_.begin(), queue_.end(), *covered));
    queue_.insert(queue_.begin(), *covered);
  }
  void Unindex(uint32_t block) {
    Forget(block);
    if (references_[block] > 0) return;
    queue_.erase(std::find(queue_.begin(), queue_.end(), block));
    queue_.insert(queue_.begin(), block);
  }
  void Reset() {
    twins_.clear();
    std::fill(text_.begin(), text_.end(), Text());
  }

  const std::vector<uint32_t>& queue() const { return queue_; }
  uint32_t references(uint32_t block) const { return references_[block]; }
  bool indexed(uint32_t block) const { return !text_[block].empty(); }
  size_t indexed_count() const {
    return static_cast<size_t>(
        std::count_if(text_.begin(), text_.end(), [](const Text& it) { return !it.empty(); }));
  }

 private:
  // Where the block that a text ends with begins.
  size_t Depth(const Text& text) const { return 1 + (text.size() - 2) / block_size_ * block_size_; }
  void Forget(uint32_t block) {
    const auto it = twins_.find(text_[block]);
    it->second.erase(std::find(it->second.begin(), it->second.end(), block));
    if (it->second.empty()) twins_.erase(it);
    text_[block].clear();
  }

  uint32_t block_size_;
  uint32_t unit_;
  std::vector<uint32_t> references_;
  std::vector<Text> text_;  // of an indexed block, from the scope to its last token
  std::map<Text, std::vector<uint32_t>> twins_;
  std::vector<uint32_t> queue_;
};

}  // namespace octavo
