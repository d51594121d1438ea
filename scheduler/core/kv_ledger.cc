#include "scheduler/core/kv_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"
#include "glog/logging.h"

namespace octavo {
namespace {

constexpr uint32_t kDescribedTokens = 16;

}  // namespace

KvLedger::KvLedger(const KvLayout& layout, uint32_t block_count, bool prefix_cache,
                   uint32_t prefix_match_unit, uint64_t prefix_seed)
    : layout_(layout),
      pool_(block_count),
      index_(block_count, layout.block_size, prefix_match_unit < layout.block_size, prefix_seed),
      prefix_cache_(prefix_cache),
      prefix_match_unit_(prefix_match_unit),
      returning_references_(block_count, 0) {
  CHECK(layout.Validate().ok()) << layout.Validate();
  CHECK_GE(block_count, 1u);
  CHECK_GE(prefix_match_unit, 1u);
}

void KvLedger::UseContiguousRuns(ContiguousAllocatorKind kind) {
  CHECK(!prefix_cache_) << "contiguous runs share nothing";
  CHECK_EQ(pool_.free_count(), pool_.capacity());
  runs_ = MakeContiguousAllocator(kind, pool_.capacity());
}

std::unique_ptr<ContiguousAllocator> KvLedger::TrialRuns() const {
  return runs_ == nullptr ? nullptr : runs_->Clone();
}

PrefixHit KvLedger::FindPrefix(std::span<const TokenId> tokens, absl::string_view scope,
                               PrefixHit earlier) const {
  if (tokens.empty()) return {};
  const auto reusable = tokens.first(tokens.size() - 1);
  PrefixHit hit{.blocks = std::move(earlier.blocks)};
  hit.node = index_.FindAgain(reusable, scope, earlier.node, hit.blocks);
  hit.token_count = hit.block_count() * layout_.block_size;
  for (const BlockId block : hit.blocks) {
    hit.idle_block_count += pool_.reference_count(block) == 0;
  }
  PrefixRun run = index_.FindRun(hit.node, scope, reusable.subspan(hit.token_count));
  run.token_count -= run.token_count % prefix_match_unit_;
  if (run.token_count > 0) {
    hit.run = run;
    hit.token_count += run.token_count;
    hit.run_is_idle = pool_.reference_count(run.block) == 0;
    hit.idle_block_count += hit.run_is_idle;
  }
  return hit;
}

uint32_t KvLedger::CountFreedBy(const BlockTable& table) const {
  uint32_t count = 0;
  for (const BlockId block : table.blocks()) count += pool_.reference_count(block) == 1;
  return count;
}

void KvLedger::Share(const PrefixHit& hit, BlockTable& table) {
  CHECK(table.empty());
  for (const BlockId block : hit.blocks) pool_.AddReference(block);
  if (hit.run.token_count > 0) pool_.AddReference(hit.run.block);
  table.blocks_ = hit.blocks;
  table.indexed_count_ = table.size();
  table.node_ = hit.node;
}

void KvLedger::Reserve(uint32_t count, BlockTable& table) {
  CHECK(table.empty());
  const std::optional<BlockRun> run = runs_->Allocate(count);
  CHECK(run.has_value()) << "no free run has " << count << " blocks";
  for (uint32_t i = 0; i < run->count; ++i) {
    table.blocks_.push_back(BlockId(run->first + i));
    pool_.TakeFree(table.blocks_.back());
  }
}

void KvLedger::ShareBeginning(const BlockTable& from, uint32_t count, BlockTable& table) {
  CHECK(table.empty());
  CHECK(count >= 1 && count <= from.indexed_count());
  const auto blocks = from.blocks().first(count);
  for (const BlockId block : blocks) pool_.AddReference(block);
  table.blocks_.assign(blocks.begin(), blocks.end());
  table.indexed_count_ = count;
  table.node_ = index_.NodeOf(blocks.back());
}

BlockId KvLedger::Take() {
  const BlockPool::Taken taken = pool_.Take();
  if (taken.evicted) {
    PrefetchEvictions();
    index_.Remove(taken.block);
    ++evicted_count_;
  }
  return taken.block;
}

void KvLedger::PrefetchEvictions() const {
  constexpr int kAhead = 3;
  const FreeQueue& queue = pool_.queue();
  BlockId near = queue.Front(), far = queue.Front();
  for (int i = 0; i < 2 * kAhead && far != queue.end(); ++i) {
    if (i < kAhead) near = queue.Next(near);
    far = queue.Next(far);
  }
  if (far != queue.end()) index_.PrefetchRemoval(near, far);
}

void KvLedger::Append(uint32_t count, BlockTable& table) {
  CHECK_LE(count, available_count());
  CHECK(runs_ == nullptr || count == 0) << "contiguous tables do not grow";
  for (uint32_t i = 0; i < count; ++i) table.blocks_.push_back(Take());
}

void KvLedger::Fork(const BlockTable& parent, uint32_t block_count, BlockTable& child) {
  CHECK(child.empty());
  CHECK(runs_ == nullptr) << "contiguous tables share nothing";
  CHECK_LE(block_count, parent.size());
  const auto shared = parent.blocks().first(block_count);
  for (const BlockId block : shared) pool_.AddReference(block);
  child.blocks_.assign(shared.begin(), shared.end());
  child.indexed_count_ = parent.indexed_count_;
  child.node_ = parent.node_;
}

BlockId KvLedger::Unshare(uint32_t index, StepNumber step, BlockTable& table) {
  CHECK_GT(available_count(), 0u);
  CHECK_EQ(index + 1, table.size());
  CHECK_GE(index, table.indexed_count_);
  const BlockId source = table[index];
  CHECK_GT(table_count(source), 1u) << "block " << source.value() << " is nobody else's";
  table.blocks_[index] = Take();
  ReleaseAfter(step, source);
  return source;
}

PrefixNode KvLedger::Index(BlockId block, absl::string_view scope, const PrefixNode& parent,
                           std::span<const TokenId> tokens, StepNumber step,
                           std::optional<PrefixKey> key) {
  const PrefixIndex::Entered entered = index_.Insert(block, scope, parent, tokens, step, key);
  pool_.MarkPrefix(block);
  if (entered.covered) pool_.ClearPrefix(*entered.covered);
  return entered.node;
}

void KvLedger::IndexFull(std::span<const TokenId> tokens, uint32_t written_count,
                         absl::string_view scope, StepNumber step, BlockTable& table) {
  if (!prefix_cache_) return;
  const uint32_t block_size = layout_.block_size;
  const uint32_t begin = table.indexed_count_ * block_size;
  if (begin + block_size > written_count) return;
  const auto added = tokens.subspan(begin, written_count - begin);
  const std::vector<PrefixKey> keys = index_.KeysAfter(table.node_, scope, added);
  constexpr size_t kAhead = 3;
  for (size_t i = 0; i < keys.size(); ++i, ++table.indexed_count_) {
    if (i + kAhead < keys.size()) index_.PrefetchInsertion(keys[i + kAhead]);
    const BlockId block = table.blocks_[table.indexed_count_];
    table.node_ = index_.Contains(block)  // by a sequence that shares it
                      ? index_.NodeOf(block)
                      : Index(block, scope, table.node_, added.subspan(i * block_size, block_size),
                              step, keys[i]);
  }
}

void KvLedger::IndexLeaf(std::span<const TokenId> tokens, uint32_t written_count,
                         absl::string_view scope, StepNumber step, BlockTable& table) {
  if (!prefix_cache_ || prefix_match_unit_ >= layout_.block_size) return;
  const uint32_t begin = table.indexed_count_ * layout_.block_size;
  if (begin >= written_count) return;
  const auto leaf = tokens.subspan(begin, written_count - begin);
  if (leaf.size() < prefix_match_unit_) return;  // nobody would find it
  if (table_count(table.blocks_[table.indexed_count_]) > 1) return;
  if (index_.FindRun(table.node_, scope, leaf).token_count == leaf.size()) return;
  Index(table.blocks_[table.indexed_count_], scope, table.node_, leaf, step);
}

void KvLedger::Unindex(BlockId block) {
  index_.Remove(block);
  pool_.ClearPrefix(block);
}

void KvLedger::RewindIndexed(uint32_t written_count, BlockTable& table) {
  const uint32_t full = written_count / layout_.block_size;
  if (table.indexed_count_ <= full) return;
  table.indexed_count_ = full;
  table.node_ = full == 0 ? PrefixNode() : index_.NodeOf(table.blocks_[full - 1]);
}

void KvLedger::GiveBack(std::span<const BlockId> blocks) {
  pool_.Release(blocks);
  if (runs_ != nullptr && !blocks.empty())
    runs_->Free({blocks.back().value(), static_cast<uint32_t>(blocks.size())});
}

void KvLedger::Release(BlockTable& table) {
  std::reverse(table.blocks_.begin(), table.blocks_.end());
  GiveBack(table.blocks_);
  table = {};
}

void KvLedger::ReleaseAfter(StepNumber step, BlockTable& table) {
  std::reverse(table.blocks_.begin(), table.blocks_.end());
  returning_count_ += table.size();
  for (const BlockId block : table.blocks_) ++returning_references_[block.value()];
  returning_.push_back({step, std::move(table.blocks_)});
  table = {};
}

void KvLedger::ReleaseAfter(StepNumber step, BlockId block) {
  ++returning_count_;
  ++returning_references_[block.value()];
  returning_.push_back({step, {block}});
}

void KvLedger::CompleteThrough(StepNumber step) {
  std::erase_if(returning_, [&](const Returning& it) {
    if (it.step > step) return false;
    for (const BlockId block : it.blocks) --returning_references_[block.value()];
    GiveBack(it.blocks);
    returning_count_ -= static_cast<uint32_t>(it.blocks.size());
    return true;
  });
}

absl::Status KvLedger::ResetPrefixes() {
  if (pool_.held_count() > 0) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "the prefix cache cannot be reset while ", pool_.held_count(), " of ", pool_.capacity(),
            " blocks are held; try again when no request runs, or drain first")),
        "BLOCKS_HELD", {{"held_blocks", pool_.held_count()}, {"pool_blocks", pool_.capacity()}});
  }
  index_.Clear();
  pool_.ClearPrefixes();
  return absl::OkStatus();
}

BlockRecord KvLedger::Describe(BlockId block) const {
  BlockRecord record{.block = block,
                     .state = pool_.state(block),
                     .reference_count = pool_.reference_count(block),
                     .indexed = index_.Contains(block)};
  if (record.indexed) {
    const auto tokens = index_.TokensOf(block);
    const auto shown = tokens.first(std::min<size_t>(tokens.size(), kDescribedTokens));
    record.prefix_hash = PrefixKeyHex(index_.NodeOf(block).key);
    record.parent = index_.ParentOf(block);
    record.token_count = static_cast<uint32_t>(tokens.size());
    record.first_tokens.assign(shown.begin(), shown.end());
    record.valid_from = index_.ValidFrom(block);
  }
  return record;
}

absl::Status KvLedger::CheckInvariants(std::vector<uint32_t> references, StepNumber completed,
                                       std::span<const BlockId> ahead) const {
  if (absl::Status status = pool_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = index_.CheckInvariants(); !status.ok()) return status;
  const std::vector<uint32_t> tables = references;
  uint32_t returning = 0;
  for (const Returning& it : returning_) {
    if (it.step <= completed) {
      return absl::InternalError(
          absl::StrCat("blocks wait for step ", it.step.value(), ", which is done"));
    }
    returning += static_cast<uint32_t>(it.blocks.size());
    for (const BlockId block : it.blocks) ++references[block.value()];
  }
  for (uint32_t i = 0; i < pool_.capacity(); ++i) {
    if (table_count(BlockId(i)) == tables[i]) continue;
    return absl::InternalError(absl::StrCat("block ", i, " is in ", tables[i], " tables, counted ",
                                            table_count(BlockId(i))));
  }
  if (returning != returning_count_) {
    return absl::InternalError(
        absl::StrCat(returning, " blocks are returning, counted ", returning_count_));
  }
  if (runs_ != nullptr && runs_->free_blocks() != pool_.free_count()) {
    return absl::InternalError(absl::StrCat("free runs hold ", runs_->free_blocks(),
                                            " blocks, the pool ", pool_.free_count()));
  }
  std::vector<bool> is_ahead(pool_.capacity());
  for (const BlockId block : ahead) is_ahead[block.value()] = true;
  for (uint32_t i = 0; i < pool_.capacity(); ++i) {
    const BlockId block(i);
    if (pool_.reference_count(block) != references[i]) {
      return absl::InternalError(absl::StrCat("block ", i, " has reference count ",
                                              pool_.reference_count(block), " and ", references[i],
                                              " holders"));
    }
    if (pool_.has_prefix(block) != index_.Contains(block)) {
      return absl::InternalError(absl::StrCat("block ", i, " is ",
                                              index_.Contains(block) ? "" : "not ",
                                              "indexed; the pool thinks otherwise"));
    }
    if (is_ahead[i] && (!index_.Contains(block) || references[i] == 0)) {
      return absl::InternalError(
          absl::StrCat("block ", i, " will be filled, and is not both held and indexed"));
    }
    if (index_.Contains(block) && is_ahead[i] != (index_.ValidFrom(block) > completed)) {
      return absl::InternalError(absl::StrCat("block ", i, " is indexed before step ",
                                              index_.ValidFrom(block).value(), " wrote it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo
