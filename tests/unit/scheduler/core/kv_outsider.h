#pragma once

// An outsider that knows a prefix index from its events alone (scheduler/core/kv_events.h), as
// naively as can be: what it has must be what the index has, after every event taken in.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/kv_events.h"

namespace octavo {

class KvOutsider {
 public:
  explicit KvOutsider(uint32_t block_size) : block_size_(block_size) {}

  // An error where the events break a rule of theirs.
  absl::Status Apply(const std::vector<KvEvent>& events) {
    for (const KvEvent& event : events) {
      absl::Status status = std::visit([this](const auto& it) { return On(it); }, event.change);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  size_t size() const { return stored_.size(); }
  const BlockStored* Find(BlockId block) const {
    const auto it = stored_.find(block.value());
    return it == stored_.end() ? nullptr : &it->second;
  }
  // Nothing, or how this differs from what the index gives for the prompt. Twins are the same, and
  // so are two blocks that begin with the same run where a run is copied.
  std::string CompareLookup(const std::vector<TokenId>& tokens, absl::string_view scope,
                            uint32_t unit, const PrefixLookup& wanted) const {
    const PrefixLookup found = Lookup(tokens, scope, unit);
    if (found.hit_token_count != wanted.hit_token_count)
      return absl::StrCat(found.hit_token_count, " tokens found, not ", wanted.hit_token_count);
    if (found.blocks.size() != wanted.blocks.size()) return "another number of blocks";
    for (size_t i = 0; i < found.blocks.size(); ++i) {
      const BlockStored* a = Find(found.blocks[i]);
      const BlockStored* b = Find(wanted.blocks[i]);
      const auto count = static_cast<ptrdiff_t>(
          std::min(block_size_, wanted.hit_token_count - static_cast<uint32_t>(i) * block_size_));
      if (b == nullptr || a->parent_prefix != b->parent_prefix ||
          !std::equal(a->tokens.begin(), a->tokens.begin() + count, b->tokens.begin())) {
        return absl::StrCat("block ", i, " of the lookup holds something else");
      }
    }
    return "";
  }

  // What a prompt would reuse, in multiples of `unit` inside a block.
  PrefixLookup Lookup(std::vector<TokenId> tokens, absl::string_view scope, uint32_t unit) const {
    PrefixLookup lookup;
    if (tokens.empty()) return lookup;
    tokens.pop_back();
    uint64_t parent = 0;
    while (true) {
      const std::vector<TokenId> rest(tokens.begin() + lookup.hit_token_count, tokens.end());
      const BlockStored* best = nullptr;
      uint32_t run = 0;
      for (const auto& [block, it] : stored_) {
        if (it.parent_prefix != parent || (parent == 0 && it.scope_digest != ScopeDigest(scope)))
          continue;
        const auto end =
            std::mismatch(it.tokens.begin(), it.tokens.end(), rest.begin(), rest.end());
        const auto count = static_cast<uint32_t>(end.first - it.tokens.begin());
        if (count > run) {
          run = count;
          best = &it;
        }
      }
      if (run < block_size_) run -= run % unit;
      if (run == 0 || (run < block_size_ && unit >= block_size_)) return lookup;
      lookup.blocks.push_back(best->block);
      lookup.hit_token_count += run;
      if (run < block_size_) return lookup;
      parent = best->prefix;
    }
  }

  // Nothing, or how this differs from the blocks of a pool, of which those count that are indexed
  // and whose step is done.
  std::string Compare(const std::vector<BlockRecord>& blocks, StepNumber completed) const {
    size_t valid = 0;
    std::map<uint64_t, std::string> hashes;
    for (const BlockRecord& block : blocks) {
      if (!block.indexed || block.valid_from > completed) continue;
      ++valid;
      const BlockStored* stored = Find(block.block);
      if (stored == nullptr) return absl::StrCat("block ", block.block.value(), " is not stored");
      const size_t shown = std::min(stored->tokens.size(), block.first_tokens.size());
      if (stored->tokens.size() != block.token_count ||
          !std::equal(block.first_tokens.begin(), block.first_tokens.end(), stored->tokens.begin(),
                      stored->tokens.begin() + static_cast<ptrdiff_t>(shown))) {
        return absl::StrCat("block ", block.block.value(), " has other tokens");
      }
      if ((stored->parent_prefix == 0) == block.parent.has_value())
        return absl::StrCat("block ", block.block.value(), " begins a sequence, or does not");
      if (block.parent && blocks[block.parent->value()].valid_from <= completed) {
        const BlockStored* parent = Find(*block.parent);
        if (parent == nullptr || parent->prefix != stored->parent_prefix)
          return absl::StrCat("block ", block.block.value(), " has another parent");
      }
      std::string& hash = hashes[stored->prefix];
      if (!hash.empty() && hash != block.prefix_hash)
        return absl::StrCat("prefix ", stored->prefix, " has two hashes");
      hash = block.prefix_hash;
    }
    return valid == size() ? "" : absl::StrCat(size(), " blocks are stored, not ", valid);
  }

 private:
  absl::Status On(const BlockStored& stored) {
    const std::string name = absl::StrCat("block ", stored.block.value());
    if (stored.tokens.empty() || stored.tokens.size() > block_size_)
      return absl::InternalError(name + " has too few or too many tokens");
    if (!stored_.emplace(stored.block.value(), stored).second)
      return absl::InternalError(name + " is stored twice");
    if (stored.parent_prefix != 0 &&
        (stored.parent_prefix >= stored.prefix || !twins_.contains(stored.parent_prefix))) {
      return absl::InternalError(name + " has a parent that is not stored");
    }
    ++twins_[stored.prefix];
    return absl::OkStatus();
  }
  absl::Status On(const BlockRemoved& removed) {
    const auto it = stored_.find(removed.block.value());
    if (it == stored_.end()) {
      return absl::InternalError(
          absl::StrCat("block ", removed.block.value(), " is removed, but not stored"));
    }
    if (--twins_[it->second.prefix] == 0) twins_.erase(it->second.prefix);
    stored_.erase(it);
    return absl::OkStatus();
  }
  absl::Status On(const BlocksCleared&) {
    stored_.clear();
    twins_.clear();
    return absl::OkStatus();
  }

  uint32_t block_size_;
  std::map<uint32_t, BlockStored> stored_;
  std::map<uint64_t, uint32_t> twins_;  // blocks of each prefix
};

}  // namespace octavo
