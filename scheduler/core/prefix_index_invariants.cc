// PrefixIndex: the proof that its books balance. Everything is recounted from the records.

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "scheduler/core/prefix_index.h"

namespace octavo {

absl::Status PrefixIndex::CheckBlock(uint32_t i) const {
  const Record& record = records_[i];
  const auto fault = [i](const char* what) {
    return absl::InternalError(absl::StrCat("indexed block ", i, ": ", what));
  };
  const auto tokens = TokensOf(BlockId(i));
  if (tokens.empty() || tokens.size() > block_size_) return fault("it has a wrong token count");
  if (ChildKey(record.parent_key, tokens) != record.key) {
    return fault("its key is not the hash of its parent and tokens");
  }
  if (record.parent_node & kRootBit) {
    if (!scope_of_root_.contains(record.parent_node)) return fault("its scope is gone");
  } else if (!ParentOf(BlockId(i)).has_value()) {
    return fault("its parent is not indexed");
  }
  const uint32_t found = IsLeaf(i) ? i : FindChild(record.key, record.parent_node, tokens);
  if (found == kNone || records_[found].node != record.node) return fault("it cannot be found");
  if (!finds_runs_) return absl::OkStatus();
  const auto child = children_.find(i);
  if (child == children_.end() || *child != found) return fault("it is not among the children");
  return absl::OkStatus();
}

absl::Status PrefixIndex::CheckChildren() const {
  if (children_.size() != (finds_runs_ ? prefix_count_ : 0)) {
    return absl::InternalError(absl::StrCat("prefix index counts ", prefix_count_,
                                            " prefixes and orders ", children_.size()));
  }
  for (auto it = children_.begin(); it != children_.end(); ++it) {
    const auto next = std::next(it);
    if (!Contains(BlockId(*it)) || (next != children_.end() && Begins(*it, *next))) {
      return absl::InternalError(
          absl::StrCat("child ", *it, " is not indexed, or another begins with it"));
    }
  }
  return absl::OkStatus();
}

absl::Status PrefixIndex::CheckInvariants() const {
  uint32_t full = 0;
  uint32_t leaves = 0;
  uint32_t reachable = 0;
  for (uint32_t i = 0; i < records_.size(); ++i) {
    if (!Contains(BlockId(i))) continue;
    ++(IsLeaf(i) ? leaves : full);
    OCTAVO_RETURN_IF_ERROR(CheckBlock(i));
  }
  for (const uint32_t head : heads_) {
    for (uint32_t i = head; i != kNone && reachable <= records_.size(); i = records_[i].next) {
      ++reachable;
    }
  }
  if (full + leaves != block_count_ || reachable != full) {
    return absl::InternalError(absl::StrCat("prefix index counts ", block_count_, " blocks, has ",
                                            full, " full ones and ", leaves,
                                            " leaves, and reaches ", reachable));
  }
  return CheckChildren();
}

}  // namespace octavo
