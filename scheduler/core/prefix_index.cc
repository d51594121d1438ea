#include "scheduler/core/prefix_index.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

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

bool PrefixIndex::ChildOrder::Less(const Child& a, const Child& b) {
  if (a.parent_node != b.parent_node) return a.parent_node < b.parent_node;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(),
                                      b.tokens.end());
}

PrefixIndex::PrefixIndex(uint32_t capacity, uint32_t block_size, bool finds_runs, uint64_t seed,
                         uint32_t key_bits)
    : block_size_(block_size),
      finds_runs_(finds_runs),
      seed_(Mix64(seed)),
      high_mask_(key_bits > 64 ? LowMask(key_bits - 64) : 0),
      low_mask_(LowMask(key_bits)),
      heads_(std::bit_ceil(std::max(capacity, 1u)), kNone),
      records_(capacity),
      token_counts_(capacity),
      tokens_(size_t{capacity} * block_size),
      children_(ChildOrder(*this)) {
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
  if (tokens.size() != block_size_) high = Mix64(high ^ tokens.size());  // no full block's key
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

std::vector<PrefixKey> PrefixIndex::KeysAfter(const PrefixNode& parent, absl::string_view scope,
                                              std::span<const TokenId> tokens) const {
  std::vector<PrefixKey> keys;
  keys.reserve(tokens.size() / block_size_);
  PrefixKey key = parent.id == 0 ? RootKey(scope) : parent.key;
  for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    keys.push_back(key = ChildKey(key, tokens.first(block_size_)));
    __builtin_prefetch(&heads_[BucketOf(key)]);
  }
  return keys;
}

void PrefixIndex::PrefetchInsertion(const PrefixKey& key) const {
  if (const uint32_t head = heads_[BucketOf(key)]; head != kNone)
    __builtin_prefetch(&records_[head]);
}

void PrefixIndex::PrefetchRemoval(BlockId near, BlockId far) const {
  __builtin_prefetch(&heads_[BucketOf(records_[near.value()].key)]);
  const auto* record = reinterpret_cast<const char*>(&records_[far.value()]);
  __builtin_prefetch(record);
  __builtin_prefetch(record + sizeof(Record) - 1);
  __builtin_prefetch(&tokens_[size_t{far.value()} * block_size_]);
}

PrefixNode PrefixIndex::Find(std::span<const TokenId> tokens, absl::string_view scope,
                             std::vector<BlockId>& blocks) const {
  const auto root = roots_.find(scope);
  if (root == roots_.end()) return {};
  const PrefixNode node = Descend({root->second.node, RootKey(scope)}, tokens, blocks);
  return node.id == root->second.node ? PrefixNode{} : node;
}

// A key depends on tokens alone, not on what is found. So keys are computed some blocks ahead, and
// the memory they lead to is on its way when its turn comes: first the bucket, then its first
// block.
PrefixNode PrefixIndex::Descend(PrefixNode node, std::span<const TokenId> tokens,
                                std::vector<BlockId>& blocks) const {
  constexpr size_t kBucketAhead = 4;
  constexpr size_t kBlockAhead = 2;
  const size_t count = tokens.size() / block_size_;
  const auto tokens_of = [&](size_t i) { return tokens.subspan(i * block_size_, block_size_); };
  PrefixKey keys[kBucketAhead + 1];  // of the blocks looked at, by number
  PrefixKey last_key = node.key;
  for (size_t ahead = 0; ahead < count + kBucketAhead; ++ahead) {
    if (ahead < count) {
      last_key = keys[ahead % std::size(keys)] = ChildKey(last_key, tokens_of(ahead));
      __builtin_prefetch(&heads_[BucketOf(last_key)]);
    }
    if (ahead >= kBlockAhead && ahead - kBlockAhead < count) {
      const uint32_t head = heads_[BucketOf(keys[(ahead - kBlockAhead) % std::size(keys)])];
      if (head != kNone) {
        __builtin_prefetch(&records_[head]);
        __builtin_prefetch(&tokens_[size_t{head} * block_size_]);
      }
    }
    if (ahead < kBucketAhead) continue;
    const size_t i = ahead - kBucketAhead;
    const PrefixKey key = keys[i % std::size(keys)];
    const uint32_t found = FindChild(key, node.id, tokens_of(i));
    if (found == kNone) break;
    node = {records_[found].node, key};
    blocks.push_back(BlockId(found));
  }
  return node;
}

// Twins stand in one row in their bucket, the one that is found in front.
uint32_t PrefixIndex::TwinOf(uint32_t block) const {
  const Record& record = records_[block];
  for (const uint32_t beside : {record.next, record.previous}) {
    if (beside != kNone && records_[beside].node == record.node) return beside;
  }
  return kNone;
}

bool PrefixIndex::IsFound(BlockId block, uint64_t node) const {
  const Record& record = records_[block.value()];
  return record.node == node &&
         (record.previous == kNone || records_[record.previous].node != node);
}

// From the last block up: its node is that of the same prefix as before, as ids are never used
// again, and so is the node it names as its parent's.
PrefixNode PrefixIndex::FindAgain(std::span<const TokenId> tokens, absl::string_view scope,
                                  const PrefixNode& node, std::vector<BlockId>& blocks) const {
  uint64_t expected = node.id;
  for (size_t i = blocks.size(); i-- > 0;) {
    if (!IsFound(blocks[i], expected)) {
      blocks.clear();
      break;
    }
    expected = records_[blocks[i].value()].parent_node;
  }
  if (blocks.empty()) return Find(tokens, scope, blocks);
  return Descend(node, tokens.subspan(blocks.size() * block_size_), blocks);
}

PrefixRun PrefixIndex::FindRun(const PrefixNode& parent, absl::string_view scope,
                               std::span<const TokenId> tokens) const {
  uint64_t node = parent.id;
  if (node == 0) {
    const auto root = roots_.find(scope);
    if (root == roots_.end()) return {};
    node = root->second.node;
  }
  PrefixRun longest;
  const auto look_at = [&](uint32_t block) {
    if (records_[block].parent_node != node) return;
    const auto stored = TokensOf(BlockId(block));
    const auto end = std::mismatch(stored.begin(), stored.end(), tokens.begin(), tokens.end());
    const auto count = static_cast<uint32_t>(end.first - stored.begin());
    if (count > longest.token_count) longest = {BlockId(block), count};
  };
  const auto place = children_.lower_bound(Child{node, tokens});
  if (place != children_.end()) look_at(*place);
  if (place != children_.begin()) look_at(*std::prev(place));
  return longest;
}

PrefixIndex::Entered PrefixIndex::Insert(BlockId block, absl::string_view scope,
                                         const PrefixNode& parent, std::span<const TokenId> tokens,
                                         StepNumber valid_from,
                                         std::optional<PrefixKey> known_key) {
  const bool is_full = tokens.size() == block_size_;
  CHECK(is_full || (finds_runs_ && !tokens.empty() && tokens.size() < block_size_))
      << tokens.size() << " tokens of " << block_size_;
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
  const PrefixKey key = known_key ? *known_key : ChildKey(above.key, tokens);
  const uint32_t twin = is_full ? FindChild(key, above.id, tokens) : kNone;
  records_[block.value()] = {.key = key,
                             .parent_key = above.key,
                             .node = twin == kNone ? ++last_node_ : records_[twin].node,
                             .parent_node = above.id,
                             .valid_from = valid_from};
  token_counts_[block.value()] = static_cast<uint16_t>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + size_t{block.value()} * block_size_);
  if (is_full) LinkIntoBucket(block.value(), twin);
  ++block_count_;
  if (recorder_ != nullptr) recorder_->OnStored(DescribeStored(block.value()), valid_from);
  Entered entered{.node = NodeOf(block)};
  if (twin != kNone) return entered;
  ++prefix_count_;
  if (finds_runs_) entered.covered = InsertChild(block.value());
  if (entered.covered) Remove(*entered.covered);
  return entered;
}

// A new prefix goes to the head of its bucket, a twin right behind the one that is found before it.
void PrefixIndex::LinkIntoBucket(uint32_t block, uint32_t twin) {
  Record& record = records_[block];
  uint32_t& before = twin == kNone ? heads_[BucketOf(record.key)] : records_[twin].next;
  record.previous = twin;
  record.next = std::exchange(before, block);
  if (record.next != kNone) records_[record.next].previous = block;
}

bool PrefixIndex::Begins(uint32_t a, uint32_t b) const {
  const auto first = TokensOf(BlockId(a));
  const auto second = TokensOf(BlockId(b));
  return records_[a].parent_node == records_[b].parent_node && first.size() <= second.size() &&
         std::equal(first.begin(), first.end(), second.begin());
}

// Since no child begins with another, at most one leaf can be covered, and nothing stands between
// it and the newcomer.
std::optional<BlockId> PrefixIndex::InsertChild(uint32_t block) {
  const auto [place, is_new] = children_.insert(block);
  CHECK(is_new && (std::next(place) == children_.end() || !Begins(block, *std::next(place))))
      << "block " << block << " is a leaf that another child begins with";
  if (place == children_.begin() || !Begins(*std::prev(place), block)) return std::nullopt;
  return BlockId(*std::prev(place));
}

void PrefixIndex::Remove(BlockId block) {
  CHECK(Contains(block)) << "block " << block << " is not indexed";
  if (recorder_ != nullptr) recorder_->OnRemoved(block);
  Record& record = records_[block.value()];
  const auto child = children_.find(block.value());
  const bool is_child = child != children_.end() && *child == block.value();
  if (is_child) children_.erase(child);
  const uint32_t twin = TwinOf(block.value());
  if (!IsLeaf(block.value())) {
    if (record.previous == kNone) {
      heads_[BucketOf(record.key)] = record.next;
    } else {
      records_[record.previous].next = record.next;
    }
    if (record.next != kNone) records_[record.next].previous = record.previous;
  }
  if (twin == kNone) {
    --prefix_count_;
  } else if (is_child) {
    children_.insert(twin);
  }
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
  if (recorder_ != nullptr) recorder_->OnCleared(KvClearReason::kReset);
  std::fill(heads_.begin(), heads_.end(), kNone);
  children_.clear();
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
  return std::span(tokens_).subspan(size_t{block.value()} * block_size_,
                                    token_counts_[block.value()]);
}

std::optional<BlockId> PrefixIndex::ParentOf(BlockId block) const {
  const Record& record = records_[block.value()];
  if (record.node == 0 || (record.parent_node & kRootBit)) return std::nullopt;
  const uint32_t parent = FindNode({record.parent_node, record.parent_key});
  if (parent == kNone) return std::nullopt;
  return BlockId(parent);
}

BlockStored PrefixIndex::DescribeStored(uint32_t block) const {
  const Record& record = records_[block];
  const auto tokens = TokensOf(BlockId(block));
  BlockStored stored{.block = BlockId(block),
                     .prefix = record.node,
                     .parent_prefix = record.parent_node,
                     .tokens = {tokens.begin(), tokens.end()}};
  if (record.parent_node & kRootBit) {
    stored.parent_prefix = 0;
    stored.scope_digest = ScopeDigest(scope_of_root_.at(record.parent_node));
  }
  return stored;
}

// A prefix has a higher number than its parent.
void PrefixIndex::ListStored(std::vector<BlockStored>& stored) const {
  std::vector<std::pair<uint64_t, uint32_t>> order;  // node, block
  order.reserve(block_count_);
  for (uint32_t i = 0; i < records_.size(); ++i) {
    if (Contains(BlockId(i))) order.emplace_back(records_[i].node, i);
  }
  std::sort(order.begin(), order.end());
  stored.reserve(stored.size() + order.size());
  for (const auto& [node, block] : order) stored.push_back(DescribeStored(block));
}

}  // namespace octavo
