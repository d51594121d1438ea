// What the memory manager's books cost: blocks taken and given back, prompts looked up and cached,
// bytes. Beside them, in the same run, the usual way: a list and hash maps.
// `tools/dev bench kv`; --log FILE appends one line of JSON. Exit status 1: a limit is passed.

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <list>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/core/kv_ledger.h"

namespace octavo {
namespace {

constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kPromptTokens = 8192;
constexpr uint32_t kPromptBlocks = kPromptTokens / kBlockSize;
constexpr uint32_t kChildren = 100000;
constexpr KvLayout kLayout{
    .block_size = kBlockSize, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};

constexpr double kTakeLimitNs = 30;
constexpr double kLookupLimitUs = 60;
constexpr double kBytesLimit = 160;
constexpr double kGrowthLimit = 4;  // of any time, from the smallest pool to the largest

// CPU time of this thread, so that other work on the machine counts little.
double Nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Nanoseconds of one run, the least of several: the machine is shared.
template <typename Run>
double Least(int runs, Run run) {
  double least = 1e300;
  for (int i = 0; i < runs; ++i) {
    const double begin = Nanoseconds();
    run(i);
    least = std::min(least, Nanoseconds() - begin);
  }
  return least;
}

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::exit(2);
}

size_t BytesInUse() {
  const auto memory = mallinfo2();
  return memory.uordblks + memory.hblkhd;
}

// The plain design: free blocks in a list, counts and prefixes in hash maps, a prefix found by the
// hash of the one before it and the block's tokens.
class PlainPool {
 public:
  explicit PlainPool(uint32_t capacity) {
    for (uint32_t i = 0; i < capacity; ++i) free_.push_back(i);
  }
  void Take(uint32_t count, std::vector<uint32_t>& table) {
    for (uint32_t i = 0; i < count; ++i) {
      table.push_back(free_.front());
      references_[free_.front()] = 1;
      free_.pop_front();
    }
  }
  void Release(std::vector<uint32_t>& table) {
    for (auto block = table.rbegin(); block != table.rend(); ++block) {
      const auto it = references_.find(*block);
      if (--it->second > 0) continue;
      references_.erase(it);
      free_.push_front(*block);
    }
    table.clear();
  }
  void Index(const std::vector<TokenId>& tokens) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i + kBlockSize <= tokens.size(); i += kBlockSize) {
      block_of_.emplace(Key(hash, tokens, i), i);
    }
  }
  uint32_t Find(const std::vector<TokenId>& tokens) const {
    uint64_t hash = 0;
    uint32_t i = 0;
    while (i + kBlockSize < tokens.size() && block_of_.contains(Key(hash, tokens, i))) {
      i += kBlockSize;
    }
    return i;
  }

 private:
  static std::string Key(uint64_t& hash, const std::vector<TokenId>& tokens, uint32_t begin) {
    std::string key(reinterpret_cast<const char*>(&hash), sizeof(hash));
    key.append(reinterpret_cast<const char*>(&tokens[begin]), kBlockSize * sizeof(TokenId));
    hash = std::hash<std::string>()(key);
    return key;
  }
  std::list<uint32_t> free_;
  std::unordered_map<uint32_t, uint32_t> references_;
  std::unordered_map<std::string, uint32_t> block_of_;
};

std::vector<TokenId> Prompt(uint32_t id, uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<TokenId>((id * 7919u + i * 31u) % 100000);
  }
  return tokens;
}

KvLedger MakeLedger(uint32_t blocks) {
  return KvLedger(kLayout, blocks, /*prefix_cache=*/true, /*prefix_match_unit=*/1, 4711);
}

// Writes `tokens` as one sequence and lets it go, so that its blocks are cached.
void Cache(KvLedger& ledger, const std::vector<TokenId>& tokens) {
  const PrefixHit hit = ledger.FindPrefix(tokens, "");
  BlockTable table;
  ledger.Share(hit, table);
  ledger.Append(kLayout.BlocksFor(tokens.size()) - hit.block_count(), table);
  if (hit.run.token_count > 0) ledger.ReleaseAfter(StepNumber(1), hit.run.block);
  ledger.CompleteThrough(StepNumber(1));
  const auto count = static_cast<uint32_t>(tokens.size());
  ledger.IndexFull(tokens, count, "", StepNumber(1), table);
  ledger.IndexLeaf(tokens, count, "", StepNumber(1), table);
  ledger.Release(table);
}

// As many rounds as it takes: every sequence of four gives its blocks up and takes others.
template <typename Table, typename Turn>
double PerBlock(uint32_t table_blocks, Turn turn) {
  constexpr uint32_t kTurns = 4000;
  std::vector<Table> tables(4);
  const auto round = [&](int) {
    for (uint32_t i = 0; i < kTurns; ++i) turn(tables[i % tables.size()]);
  };
  return Least(7, round) / (kTurns * table_blocks);
}

struct PoolCost {
  uint32_t blocks = 0;
  double take_ns = 0;    // and release, a block
  double plain_ns = 0;   // the same, plainly
  double cache_ns = 0;   // a block evicted, taken, indexed and released
  double lookup_us = 0;  // of a cached prompt, another one each time
  double bytes = 0;      // a block
};

PoolCost MeasurePool(uint32_t blocks) {
  constexpr uint32_t kTableBlocks = 64;
  PoolCost cost{.blocks = blocks};
  {
    KvLedger ledger = MakeLedger(blocks);
    cost.take_ns = PerBlock<BlockTable>(kTableBlocks, [&](BlockTable& table) {
      ledger.Release(table);
      ledger.Append(kTableBlocks, table);
    });
  }
  {
    PlainPool pool(blocks);
    cost.plain_ns = PerBlock<std::vector<uint32_t>>(kTableBlocks, [&](auto& table) {
      pool.Release(table);
      pool.Take(kTableBlocks, table);
    });
  }
  const size_t before = BytesInUse();
  KvLedger ledger = MakeLedger(blocks);
  const uint32_t prompts = blocks / kPromptBlocks;
  for (uint32_t id = 0; id < prompts; ++id) Cache(ledger, Prompt(id, kPromptTokens));
  for (uint32_t i = prompts * kPromptBlocks; i < blocks; ++i)
    Cache(ledger, Prompt(1 << 29 | i, 16));
  Require(ledger.pool().free_count() == 0, "the pool is not full");
  cost.bytes = static_cast<double>(BytesInUse() - before) / blocks;

  std::mt19937 random(1);
  cost.lookup_us = 1e-3 * Least(40, [&, prompt = std::vector<TokenId>()](int) mutable {
                     prompt = Prompt(random() % prompts, kPromptTokens);
                   });
  const double making_us = cost.lookup_us;
  cost.lookup_us =
      1e-3 * Least(40,
                   [&](int) {
                     const auto prompt = Prompt(random() % prompts, kPromptTokens);
                     const PrefixHit hit = ledger.FindPrefix(prompt, "");
                     Require(hit.token_count == kPromptTokens - 1, "the hit is too short");
                   }) -
      making_us;
  uint32_t id = 1 << 20;
  cost.cache_ns =
      Least(20, [&](int) { Cache(ledger, Prompt(++id, kPromptTokens)); }) / kPromptBlocks;
  return cost;
}

struct LookupCost {
  double cached_us = 0;
  double unknown_us = 0;
  double crowded_us = 0;  // ends among kChildren children
  double plain_us = 0;    // cached, plainly
};

LookupCost MeasureLookups() {
  LookupCost cost;
  KvLedger ledger = MakeLedger(kChildren + 2 * kPromptBlocks);
  PlainPool plain(1);
  const std::vector<TokenId> prompt = Prompt(1, kPromptTokens);
  Cache(ledger, prompt);
  plain.Index(prompt);
  // The others differ from it in their last block only, in which they begin alike in groups.
  std::vector<TokenId> other = prompt;
  std::mt19937 random(1);
  for (uint32_t i = 0; i < kChildren; ++i) {
    for (uint32_t j = 0; j < kBlockSize; ++j) {
      const auto token = static_cast<TokenId>(j < 10 ? random() % 2 : random() % 50000);
      other[kPromptTokens - kBlockSize + j] = token;
    }
    Cache(ledger, other);
  }
  other[kPromptTokens - 4] = 60000;
  const auto look_up = [&](const std::vector<TokenId>& tokens, uint32_t expected) {
    return 1e-3 * Least(100, [&](int) {
             Require(ledger.FindPrefix(tokens, "").token_count == expected, "a hit");
           });
  };
  cost.cached_us = look_up(prompt, kPromptTokens - 1);
  cost.unknown_us = look_up(Prompt(77, kPromptTokens), 0);
  cost.crowded_us = look_up(other, kPromptTokens - 4);
  cost.plain_us = 1e-3 * Least(100, [&](int) {
                    Require(plain.Find(prompt) == kPromptTokens - kBlockSize, "a plain hit");
                  });
  return cost;
}

int failures = 0;

void Line(const char* what, double value, const char* unit, double limit) {
  const bool ok = value <= limit;
  failures += !ok;
  std::printf("  %-58s %8.1f %-3s limit %5.0f  %s\n", what, value, unit, limit, ok ? "ok" : "OVER");
}

void Main(const std::string& log) {
  std::printf("%9s %16s %18s %19s %18s %12s\n", "blocks", "take+release ns", "list and maps ns",
              "evict and cache ns", "lookup 8,192 us", "bytes/block");
  std::vector<PoolCost> costs;
  std::string json;
  for (const uint32_t blocks : {1000u, 10000u, 100000u, 1000000u}) {
    const PoolCost cost = costs.emplace_back(MeasurePool(blocks));
    std::printf("%9u %16.1f %18.1f %19.1f %18.1f %12.1f\n", blocks, cost.take_ns, cost.plain_ns,
                cost.cache_ns, cost.lookup_us, cost.bytes);
    absl::StrAppendFormat(&json,
                          "%s{\"blocks\": %u, \"take_ns\": %.1f, \"plain_ns\": %.1f, "
                          "\"cache_ns\": %.1f, \"lookup_us\": %.1f, \"bytes\": %.1f}",
                          json.empty() ? "" : ", ", blocks, cost.take_ns, cost.plain_ns,
                          cost.cache_ns, cost.lookup_us, cost.bytes);
  }
  const LookupCost lookup = MeasureLookups();
  const PoolCost& small = costs.front();
  const PoolCost& large = costs.back();
  std::printf("\n");
  Line("take and release, a block", large.take_ns, "ns", kTakeLimitNs);
  Line("a prompt of 8,192 tokens looked up, cached", lookup.cached_us, "us", kLookupLimitUs);
  Line("  one of a full pool of 1,000,000, another each time", large.lookup_us, "us",
       kLookupLimitUs);
  Line("  not cached", lookup.unknown_us, "us", kLookupLimitUs);
  Line("  its match ends among 100,000 children", lookup.crowded_us, "us", kLookupLimitUs);
  Line("a block of 16 with its tokens", large.bytes, "B", kBytesLimit);
  Line("1,000 to 1,000,000 blocks: take and release", large.take_ns / small.take_ns, "x",
       kGrowthLimit);
  Line("1,000 to 1,000,000 blocks: evict and cache", large.cache_ns / small.cache_ns, "x",
       kGrowthLimit);
  Line("1,000 to 1,000,000 blocks: lookup", large.lookup_us / small.lookup_us, "x", kGrowthLimit);
  std::printf("  (a cached prompt looked up in a hash map of strings: %.1f us)\n", lookup.plain_us);
  if (log.empty()) return;
  std::ofstream(log, std::ios::app) << absl::StrFormat(
      "{\"bench\": \"kv\", \"unix_s\": %d, \"pools\": [%s], \"lookup_us\": {\"cached\": %.1f, "
      "\"unknown\": %.1f, \"crowded\": %.1f, \"plain\": %.1f}}\n",
      std::time(nullptr), json, lookup.cached_us, lookup.unknown_us, lookup.crowded_us,
      lookup.plain_us);
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  if (argc != 1 && (argc != 3 || std::string_view(argv[1]) != "--log")) {
    std::fprintf(stderr, "kv_bench [--log FILE]\n");
    return 2;
  }
  octavo::Main(argc == 3 ? argv[2] : "");
  return octavo::failures > 0 ? 1 : 0;
}
