#include "scheduler/core/prefix_index.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "glog/logging.h"

namespace octavo {
namespace {

constexpr uint64_t LowMask(uint32_t bits) {
  return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

// What the root's key is hashed from, so that a salt is never mistaken for another kind of extra
// key.
constexpr uint64_t kScopeTag = 0x73636F7065;  // "scope"

}  // namespace

std::string PrefixKeyHex(const PrefixKey& key) {
  return absl::StrCat(absl::Hex(key.high, absl::kZeroPad16), absl::Hex(key.low, absl::kZeroPad16));
}

PrefixIndex::PrefixIndex(uint32_t capacity, uint32_t block_size, uint64_t seed, uint32_t key_bits)
    : block_size_(block_size),
      seed_(Mix64(seed)),
      high_mask_(key_bits > 64 ? LowMask(key_bits - 64) : 0),
      low_mask_(LowMask(key_bits)),
      heads_(std::bit_ceil(std::max(capacity, 1u)), kNone),
      records_(capacity),
      tokens_(size_t{capacity} * block_size) {
  CHECK_GE(block_size, 1u);
}

PrefixKey PrefixIndex::RootKey(absl::string_view scope) const {
  PrefixKey key{Mix64(seed_ ^ kScopeTag), Mix64(~seed_ ^ scope.size())};
  for (const char byte : scope) {
    key.high = Mix64(key.high ^ static_cast<uint8_t>(byte));
    key.low = Mix64(key.low ^ static_cast<uint8_t>(byte));
  }
  return {key.high & high_mask_, key.low & low_mask_};
}

// Two lanes of splitmix64 steps over the tokens, two tokens a step; the lanes start apart, so
// together they give 128 bits.
PrefixKey PrefixIndex::ChildKey(const PrefixKey& parent, std::span<const TokenId> tokens) const {
  uint64_t high = Mix64(parent.high ^ seed_);
  uint64_t low = Mix64(parent.low ^ std::rotl(seed_, 32) ^ high);
  size_t i = 0;
  for (; i + 1 < tokens.size(); i += 2) {
    const uint64_t pair =
        uint64_t{static_cast<uint32_t>(tokens[i])} << 32 | static_cast<uint32_t>(tokens[i + 1]);
    high = Mix64(high ^ pair);
    low = Mix64(low ^ pair);
  }
  if (i < tokens.size()) {
    high = Mix64(high ^ static_cast<uint32_t>(tokens[i]));
    low = Mix64(low ^ static_cast<uint32_t>(tokens[i]));
  }
  return {high & high_mask_, low & low_mask_};
}

uint32_t PrefixIndex::FindChild(const PrefixKey& key, uint64_t parent_node,
                                std::span<const TokenId> tokens) const {
  for (uint32_t i = heads_[BucketOf(key)]; i != kNone; i = records_[i].next) {
    const Record& record = records_[i];
    if (record.key == key && record.parent_node == parent_node &&
        std::equal(tokens.begin(), tokens.end(), tokens_.begin() + size_t{i} * block_size_)) {
      return i;
    }
  }
  return kNone;
}

uint32_t PrefixIndex::FindNode(const PrefixNode& node) const {
  for (uint32_t i = heads_[BucketOf(node.key)]; i != kNone; i = records_[i].next) {
    if (records_[i].node == node.id) return i;
  }
  return kNone;
}

PrefixNode PrefixIndex::Find(std::span<const TokenId> tokens, absl::string_view scope,
                             std::vector<BlockId>& blocks) const {
  const auto root = roots_.find(scope);
  if (root == roots_.end()) return {};
  PrefixNode node{root->second.node, RootKey(scope)};
  for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    const auto block_tokens = tokens.first(block_size_);
    const PrefixKey key = ChildKey(node.key, block_tokens);
    const uint32_t found = FindChild(key, node.id, block_tokens);
    if (found == kNone) break;
    node = {records_[found].node, key};
    blocks.push_back(BlockId(found));
  }
  return node.id == root->second.node ? PrefixNode{} : node;
}

PrefixNode PrefixIndex::Insert(BlockId block, absl::string_view scope, const PrefixNode& parent,
                               std::span<const TokenId> tokens, StepNumber valid_from) {
  CHECK_EQ(tokens.size(), block_size_);
  CHECK(!Contains(block)) << "block " << block << " is indexed already";
  PrefixNode above = parent;
  if (above.id == 0) {
    Root& root = roots_[scope];
    if (root.child_count++ == 0) {
      root.node = kRootBit | ++last_node_;
      scope_of_root_[root.node] = std::string(scope);
    }
    above = {root.node, RootKey(scope)};
  }
  const PrefixKey key = ChildKey(above.key, tokens);
  const uint32_t twin = FindChild(key, above.id, tokens);
  Record& record = records_[block.value()];
  record = {.key = key,
            .parent_key = above.key,
            .node = twin == kNone ? ++last_node_ : records_[twin].node,
            .parent_node = above.id,
            .valid_from = valid_from};
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + size_t{block.value()} * block_size_);
  // A new prefix goes to the head of its bucket, a twin right behind the one that is found before
  // it.
  if (twin == kNone) {
    uint32_t& head = heads_[BucketOf(key)];
    record.next = head;
    head = block.value();
    ++prefix_count_;
  } else {
    record.previous = twin;
    record.next = records_[twin].next;
    records_[twin].next = block.value();
  }
  if (record.next != kNone) records_[record.next].previous = block.value();
  ++block_count_;
  return {record.node, key};
}

void PrefixIndex::Remove(BlockId block) {
  CHECK(Contains(block)) << "block " << block << " is not indexed";
  Record& record = records_[block.value()];
  if (record.previous == kNone) {
    heads_[BucketOf(record.key)] = record.next;
  } else {
    records_[record.previous].next = record.next;
  }
  if (record.next != kNone) records_[record.next].previous = record.previous;
  if (FindNode({record.node, record.key}) == kNone) --prefix_count_;
  if (record.parent_node & kRootBit) {
    const auto scope = scope_of_root_.find(record.parent_node);
    const auto root = roots_.find(scope->second);
    if (--root->second.child_count == 0) {
      roots_.erase(root);
      scope_of_root_.erase(scope);
    }
  }
  record = {};
  --block_count_;
}

void PrefixIndex::Clear() {
  std::fill(heads_.begin(), heads_.end(), kNone);
  std::fill(records_.begin(), records_.end(), Record{});
  roots_.clear();
  scope_of_root_.clear();
  block_count_ = 0;
  prefix_count_ = 0;
}

PrefixNode PrefixIndex::NodeOf(BlockId block) const {
  const Record& record = records_[block.value()];
  return {record.node, record.key};
}

std::span<const TokenId> PrefixIndex::TokensOf(BlockId block) const {
  return std::span(tokens_).subspan(size_t{block.value()} * block_size_, block_size_);
}

std::optional<BlockId> PrefixIndex::ParentOf(BlockId block) const {
  const Record& record = records_[block.value()];
  if (record.node == 0 || (record.parent_node & kRootBit)) return std::nullopt;
  const uint32_t parent = FindNode({record.parent_node, record.parent_key});
  if (parent == kNone) return std::nullopt;
  return BlockId(parent);
}

absl::Status PrefixIndex::CheckInvariants() const {
  uint32_t indexed = 0;
  uint32_t reachable = 0;
  for (uint32_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (record.node == 0) continue;
    ++indexed;
    const auto fault = [i](const char* what) {
      return absl::InternalError(absl::StrCat("indexed block ", i, ": ", what));
    };
    if (ChildKey(record.parent_key, TokensOf(BlockId(i))) != record.key) {
      return fault("its key is not the hash of its parent and tokens");
    }
    if (record.parent_node & kRootBit) {
      if (!scope_of_root_.contains(record.parent_node)) return fault("its scope is gone");
    } else if (!ParentOf(BlockId(i)).has_value()) {
      return fault("its parent is not indexed");
    }
    const uint32_t found = FindChild(record.key, record.parent_node, TokensOf(BlockId(i)));
    if (found == kNone || records_[found].node != record.node) return fault("it cannot be found");
  }
  for (const uint32_t head : heads_) {
    for (uint32_t i = head; i != kNone && reachable <= records_.size(); i = records_[i].next) {
      ++reachable;
    }
  }
  if (indexed != block_count_ || reachable != block_count_) {
    return absl::InternalError(absl::StrCat("prefix index counts ", block_count_, " blocks, has ",
                                            indexed, " and reaches ", reachable));
  }
  return absl::OkStatus();
}

}  // namespace octavo
