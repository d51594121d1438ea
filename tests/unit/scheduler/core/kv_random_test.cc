// The books of the KV memory under random operations, beside the plainest model of them: token
// lists compared as a whole, a queue searched from the front. After every operation each block's
// state, count and place in the queue, and what every lookup finds, must be the same, and the
// books' own invariants hold: 10⁷ operations in all. OCTAVO_KV_STEPS=N runs N on each pool, and a
// share of them on the large one.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "scheduler/core/kv_ledger.h"
#include "tests/unit/scheduler/core/naive_kv.h"

namespace octavo {
namespace {

class RandomKv {
 public:
  RandomKv(uint64_t seed, uint32_t block_count, uint32_t block_size, uint32_t unit)
      : random_(seed),
        layout_{.block_size = block_size, .layer_count = 1, .kv_head_count = 1, .head_dim = 8},
        ledger_(layout_, block_count, /*prefix_cache=*/true, unit, seed),
        naive_(block_count, block_size, unit),
        unit_(unit) {}

  void Step() {
    switch (Draw(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Admit();
      case 4:
      case 5:
      case 6:
        return Plan();
      case 7:
        return AdmitBeside();
      case 8:
        return Fork();
      case 9:
      case 10:
      case 11:
      case 12:
        return Complete(/*failed=*/Draw(8) == 0);
      case 13:
      case 14:
      case 15:
      case 16:
      case 17:
        return Leave();
      case 18:
        return Look();
      default:
        if (Draw(8) == 0) Reset(/*idle=*/Draw(8) == 0);
    }
  }

  void Compare() {
    std::vector<uint32_t> references(ledger_.pool().capacity());
    for (const Holder& holder : holders_) {
      for (const uint32_t block : holder.blocks) ++references[block];
    }
    std::vector<BlockId> ahead;
    for (const uint32_t block : ahead_) ahead.push_back(BlockId(block));
    const absl::Status status = ledger_.CheckInvariants(std::move(references), step_, ahead);
    ASSERT_TRUE(status.ok()) << status;
    const BlockPool& pool = ledger_.pool();
    BlockId at = pool.queue().Front();
    for (const uint32_t block : naive_.queue()) {
      ASSERT_EQ(at.value(), block);
      at = pool.queue().Next(at);
    }
    ASSERT_EQ(at, pool.queue().end());
    for (uint32_t i = 0; i < pool.capacity(); ++i) {
      ASSERT_EQ(pool.reference_count(BlockId(i)), naive_.references(i));
      ASSERT_EQ(ledger_.index().Contains(BlockId(i)), naive_.indexed(i));
    }
  }

  uint64_t in_flight_hits = 0, beginnings = 0, undone = 0, forks = 0, tail_copies = 0;
  uint64_t whole_hits = 0, partial_hits = 0, refusals = 0, resets = 0, failed_steps = 0;
  uint64_t evictions() const { return ledger_.evicted_count(); }

 private:
  struct Holder {
    Text text;  // scope and tokens
    BlockTable table;
    std::vector<uint32_t> blocks;  // the same, naively
    uint32_t written = 0;
    uint32_t planned = 0;
    bool relies = false;  // its table has blocks that the step in flight is to fill
  };
  struct Waiting {
    StepNumber step;
    std::vector<uint32_t> blocks;
  };

  uint64_t Draw(uint64_t bound) { return random_() % bound; }
  static std::vector<TokenId> TokensOf(const Text& text) { return {text.begin() + 1, text.end()}; }
  static std::string ScopeOf(const Text& text) { return text.substr(0, 1); }

  // Mostly one, so that beginnings are shared; one before it and one after it, so that there are
  // runs of equal length on both sides of a text.
  char DrawToken() { return "bbbbbbac"[Draw(8)]; }
  Text DrawText() {
    Text text(1, Draw(4) == 0 ? 'x' : 'y');
    if (!seen_.empty() && Draw(4) != 0) {
      text = seen_[Draw(seen_.size())];
      if (Draw(2) == 0) text.resize(1 + Draw(text.size()));
    }
    const uint64_t more = Draw(2 * layout_.block_size + 2) + (text.size() == 1);
    for (uint64_t i = 0; i < more; ++i) text.push_back(DrawToken());
    const size_t limit =
        1 + layout_.block_size * std::max<size_t>(6, ledger_.pool().capacity() / 32);
    if (text.size() > limit) text.resize(limit);
    return text;
  }

  void ExpectSame(const PrefixHit& hit, const NaiveHit& naive) {
    std::vector<uint32_t> blocks;
    blocks.reserve(hit.blocks.size());
    for (const BlockId block : hit.blocks) blocks.push_back(block.value());
    ASSERT_EQ(blocks, naive.blocks);
    ASSERT_EQ(hit.run.token_count, naive.run_tokens);
    if (naive.run_tokens > 0) {
      ASSERT_EQ(hit.run.block.value(), naive.run_block);
    }
    ASSERT_EQ(hit.token_count, blocks.size() * layout_.block_size + naive.run_tokens);
    uint32_t idle = 0;
    for (const uint32_t block : blocks) idle += naive_.references(block) == 0;
    if (naive.run_tokens > 0) idle += naive_.references(naive.run_block) == 0;
    ASSERT_EQ(hit.idle_block_count, idle);
  }

  void Look() {
    const Text text = DrawText();
    ExpectSame(ledger_.FindPrefix(TokensOf(text), ScopeOf(text)), naive_.Find(text));
  }

  // A request with all blocks of its tokens, its first step planned; or refused, and nothing has
  // changed.
  void Admit() {
    Holder holder{.text = DrawText()};
    PrefixHit hit = ledger_.FindPrefix(TokensOf(holder.text), ScopeOf(holder.text));
    NaiveHit naive = naive_.Find(holder.text);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(hit, naive));
    const uint32_t target = layout_.BlocksFor(holder.text.size() - 1);
    const auto short_of_blocks = [&] {
      return target - hit.block_count() + hit.idle_block_count > ledger_.available_count();
    };
    if (short_of_blocks() && hit.run_is_idle) {
      hit.DropRun();
      naive.run_tokens = 0;
    }
    if (short_of_blocks()) {
      ++refusals;
      return;
    }
    whole_hits += !hit.blocks.empty();
    partial_hits += hit.run.token_count > 0;
    ledger_.Share(hit, holder.table);
    for (const uint32_t block : naive.blocks) naive_.AddReference(block);
    if (naive.run_tokens > 0) naive_.AddReference(naive.run_block);
    holder.blocks = naive.blocks;
    holder.written = hit.block_count() * layout_.block_size;
    holder.relies = AnyAhead(naive.blocks) || (naive.run_tokens > 0 && AnyAhead({naive.run_block}));
    in_flight_hits += holder.relies;
    Append(target - hit.block_count(), holder);
    PlanOne(holder);
    if (hit.run.token_count > 0) {
      ledger_.ReleaseAfter(last_planned(), hit.run.block);
      waiting_.push_back({last_planned(), {naive.run_block}});
    }
    Remember(holder.text);
    holders_.push_back(std::move(holder));
  }

  void Remember(const Text& text) {
    constexpr size_t kRemembered = 24;
    if (seen_.size() < kRemembered) {
      seen_.push_back(text);
    } else {
      seen_[Draw(kRemembered)] = text;
    }
  }

  void Append(uint32_t count, Holder& holder) {
    ledger_.Append(count, holder.table);
    for (uint32_t i = 0; i < count; ++i) holder.blocks.push_back(naive_.Take());
  }

  StepNumber last_planned() const { return StepNumber(step_.value() + 1); }
  bool AnyAhead(const std::vector<uint32_t>& blocks) const {
    return std::any_of(blocks.begin(), blocks.end(), [&](uint32_t block) {
      return std::find(ahead_.begin(), ahead_.end(), block) != ahead_.end();
    });
  }

  // All its tokens are written by the step in flight. Its blocks are indexed ahead of it, or, as
  // where a token is not known yet, with its result.
  void PlanOne(Holder& holder) {
    holder.planned = static_cast<uint32_t>(holder.text.size()) - 1;
    if (Draw(4) == 0) return;
    for (const uint32_t block : IndexFull(holder, holder.planned, last_planned())) {
      ahead_.push_back(block);
    }
  }

  // Returns the blocks that were not indexed before.
  std::vector<uint32_t> IndexFull(Holder& holder, uint32_t written, StepNumber step) {
    ledger_.IndexFull(TokensOf(holder.text), written, ScopeOf(holder.text), step, holder.table);
    std::vector<uint32_t> indexed;
    for (uint32_t i = 0; (i + 1) * layout_.block_size <= written; ++i) {
      if (naive_.indexed(holder.blocks[i])) continue;
      naive_.Index(holder.blocks[i], holder.text.substr(0, 1 + (i + 1) * layout_.block_size));
      indexed.push_back(holder.blocks[i]);
    }
    return indexed;
  }

  // A request begins with the blocks of another one, of which the step in flight fills the last.
  void AdmitBeside() {
    if (holders_.empty()) return;
    const Holder& other = holders_[Draw(holders_.size())];
    const uint32_t block_size = layout_.block_size;
    const uint32_t count = other.table.indexed_count();
    if (count == 0) return;
    Holder holder{.text = other.text.substr(0, 1 + count * block_size) + DrawToken()};
    const uint32_t target = layout_.BlocksFor(holder.text.size() - 1);
    if (target - count > ledger_.available_count()) return;
    ledger_.ShareBeginning(other.table, count, holder.table);
    holder.blocks.assign(other.blocks.begin(), other.blocks.begin() + count);
    for (const uint32_t block : holder.blocks) naive_.AddReference(block);
    holder.written = count * block_size;
    holder.relies = other.relies || AnyAhead(holder.blocks);
    Append(target - count, holder);
    PlanOne(holder);
    ++beginnings;
    holders_.push_back(std::move(holder));
  }

  uint32_t TablesWith(uint32_t block) const {
    return static_cast<uint32_t>(
        std::count_if(holders_.begin(), holders_.end(), [&](const Holder& it) {
          return std::find(it.blocks.begin(), it.blocks.end(), block) != it.blocks.end();
        }));
  }

  // A sequence goes on as two, from what is planned of it.
  void Fork() {
    if (holders_.empty()) return;
    const Holder& parent = holders_[Draw(holders_.size())];
    const uint32_t count = layout_.BlocksFor(parent.planned);
    if (count == 0 || count != parent.blocks.size()) return;
    Holder child{.text = parent.text.substr(0, 1 + parent.planned),
                 .blocks = parent.blocks,
                 .written = parent.written,
                 .planned = parent.planned,
                 .relies = parent.relies || parent.planned > parent.written};
    ledger_.Fork(parent.table, count, child.table);
    for (const uint32_t block : child.blocks) naive_.AddReference(block);
    ++forks;
    holders_.push_back(std::move(child));
  }

  // Some sequence has grown; if it would write into a block that another one has too, into a copy.
  void Plan() {
    if (holders_.empty()) return;
    Holder& holder = holders_[Draw(holders_.size())];
    const Text grown = holder.text + Text(1 + Draw(layout_.block_size + 1), DrawToken());
    const uint32_t need =
        layout_.BlocksFor(grown.size() - 1) - static_cast<uint32_t>(holder.blocks.size());
    const uint32_t tail = layout_.BlockIndex(holder.planned);
    const bool copies = tail < holder.blocks.size() && TablesWith(holder.blocks[tail]) > 1;
    if (need + copies > ledger_.available_count()) return;
    holder.text = grown;
    if (copies) {
      const uint32_t shared = holder.blocks[tail];
      ASSERT_EQ(ledger_.Unshare(tail, last_planned(), holder.table).value(), shared);
      waiting_.push_back({last_planned(), {shared}});
      holder.blocks[tail] = naive_.Take();
      holder.written = std::min(holder.written, tail * layout_.block_size);
      ++tail_copies;
    }
    Append(need, holder);
    PlanOne(holder);
    Remember(grown);
  }

  // The step in flight is done, or was refused: then nothing that it was to write is there.
  void Complete(bool failed) {
    undone += failed ? ahead_.size() : 0;
    for (; failed && !ahead_.empty(); ahead_.pop_back()) {
      ledger_.Unindex(BlockId(ahead_.back()));
      naive_.Unindex(ahead_.back());
    }
    ahead_.clear();
    step_ = last_planned();
    ledger_.CompleteThrough(step_);
    for (const Waiting& it : waiting_) naive_.Release(it.blocks);
    waiting_.clear();
    failed_steps += failed;
    for (Holder& holder : holders_) {
      if (failed) {
        ledger_.RewindIndexed(holder.written, holder.table);
        holder.planned = holder.written;
        continue;
      }
      holder.relies = false;
      holder.written = std::max(holder.written, holder.planned);
      IndexFull(holder, holder.written, step_);
    }
    // Who relied on blocks that are not filled gives them up.
    std::erase_if(holders_, [&](Holder& holder) {
      if (!holder.relies) return false;
      ledger_.Release(holder.table);
      naive_.Release(holder.blocks);
      return true;
    });
  }

  // A sequence ends or is preempted, with its step in flight or between two.
  void Leave() {
    if (holders_.empty()) return;
    std::swap(holders_[Draw(holders_.size())], holders_.back());
    Holder& holder = holders_.back();
    const uint32_t block_size = layout_.block_size;
    ledger_.IndexLeaf(TokensOf(holder.text), holder.written, ScopeOf(holder.text), step_,
                      holder.table);
    const uint32_t leaf = holder.written % block_size;
    const bool is_ahead = leaf > 0 && naive_.indexed(holder.blocks[holder.written / block_size]);
    if (leaf > 0 && !is_ahead && unit_ < block_size && leaf >= unit_ &&
        TablesWith(holder.blocks[holder.written / block_size]) == 1) {
      naive_.Index(holder.blocks[holder.written / block_size],
                   holder.text.substr(0, 1 + holder.written));
    }
    if (holder.planned > holder.written || Draw(2) == 0) {
      ledger_.ReleaseAfter(last_planned(), holder.table);
      waiting_.push_back({last_planned(), holder.blocks});
    } else {
      ledger_.Release(holder.table);
      naive_.Release(holder.blocks);
    }
    holders_.pop_back();
  }

  // `idle`: after everybody has left.
  void Reset(bool idle) {
    while (idle && !holders_.empty()) Leave();
    if (idle) Complete(/*failed=*/false);
    const bool held = naive_.queue().size() < ledger_.pool().capacity();
    ASSERT_EQ(ledger_.ResetPrefixes().ok(), !held);
    if (held) return;
    naive_.Reset();
    ++resets;
  }

  std::mt19937_64 random_;
  KvLayout layout_;
  KvLedger ledger_;
  NaiveKv naive_;
  uint32_t unit_;
  StepNumber step_;
  std::vector<Holder> holders_;
  std::vector<Waiting> waiting_;
  std::vector<uint32_t> ahead_;  // indexed, and the step in flight is to fill them
  std::vector<Text> seen_;
};

struct Setting {
  uint32_t block_count, block_size, unit;
  uint32_t share = 1;  // one in so many of the steps: large pools take longer to compare
};

class KvRandomTest : public testing::TestWithParam<Setting> {};

TEST_P(KvRandomTest, EveryOperationLeavesWhatTheNaiveModelHas) {
  const auto [block_count, block_size, unit, share] = GetParam();
  uint64_t steps = 1250000;
  const char* text = std::getenv("OCTAVO_KV_STEPS");
  ASSERT_TRUE(text == nullptr || absl::SimpleAtoi(text, &steps)) << text;
  RandomKv kv(block_count, block_count, block_size, unit);
  for (uint64_t i = 0; i < steps / share; ++i) {
    ASSERT_NO_FATAL_FAILURE(kv.Step()) << "operation " << i;
    ASSERT_NO_FATAL_FAILURE(kv.Compare()) << "operation " << i;
  }
  std::cout << kv.whole_hits << " hits of whole blocks, " << kv.partial_hits << " of a part, "
            << kv.in_flight_hits << " in flight, " << kv.beginnings << " shared in a step, "
            << kv.forks << " forks, " << kv.tail_copies << " copies on write, " << kv.refusals
            << " refusals, " << kv.evictions() << " evictions, " << kv.failed_steps
            << " failed steps, " << kv.undone << " blocks undone, " << kv.resets << " resets\n";
  if (steps / share < 10000) return;  // too few to meet everything
  EXPECT_GT(kv.whole_hits, 0u);
  EXPECT_GT(kv.forks, 0u);
  EXPECT_EQ(kv.tail_copies > 0, block_size > 1);
  EXPECT_EQ(kv.partial_hits > 0, unit < block_size);
  EXPECT_GT(kv.evictions(), 0u);
  EXPECT_EQ(kv.refusals > 0, block_count < 1000);
  EXPECT_GT(kv.failed_steps, 0u);
  EXPECT_GT(kv.in_flight_hits, 0u);
  EXPECT_GT(kv.beginnings, 0u);
  EXPECT_GT(kv.undone, 0u);
  EXPECT_GT(kv.resets, 0u);
}

INSTANTIATE_TEST_SUITE_P(Pools, KvRandomTest,
                         testing::Values(Setting{8, 1, 1}, Setting{8, 4, 1}, Setting{10, 3, 1},
                                         Setting{13, 2, 1}, Setting{16, 4, 4}, Setting{20, 4, 2},
                                         Setting{24, 5, 1}, Setting{64, 8, 3},
                                         Setting{1000, 16, 1, 50}),
                         [](const auto& info) {
                           return std::to_string(info.param.block_count) + "BlocksOf" +
                                  std::to_string(info.param.block_size) + "Unit" +
                                  std::to_string(info.param.unit);
                         });

}  // namespace
}  // namespace octavo
