// Does the simulated worker catch a wrong engine? Faults are planted in the plans of the real one,
// in random workloads with hits, copies, samples and preemptions: what the engine would send if it
// had that fault. Its tables are wrong then, but its digest of them is right; so the digest is
// taken again, and nothing but what rows read can give the fault away.

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/table_digest.h"
#include "gtest/gtest.h"
#include "tests/sim/simulation.h"

namespace octavo {
namespace {

// What the engine's plans have made of the worker, up to the plan that is about to be changed.
struct World {
  std::mt19937_64 random;
  uint32_t block_size = 0;
  uint32_t block_count = 0;
  std::map<SequenceId, std::vector<BlockId>> tables;
  std::vector<BlockCopy> late;  // of the plan before

  bool Chance() { return random() % 4 == 0; }
  // The table of another sequence, if there is one.
  const std::vector<BlockId>* DrawOther(SequenceId id) {
    std::vector<const std::vector<BlockId>*> others;
    for (const auto& [other, table] : tables) {
      if (other != id && !table.empty()) others.push_back(&table);
    }
    return others.empty() ? nullptr : others[random() % others.size()];
  }
};

// Changes a plan and returns how many faults that are.
using Plant = uint32_t (*)(StepPlan& plan, World& world);

std::vector<BlockCopy>& CopiesOf(StepPlan& plan) { return plan.layer_groups[0].copies; }

std::set<BlockId> CopiedTails(const StepPlan& plan) {
  std::set<BlockId> tails;
  for (const TableEntryChange& change : plan.layer_groups[0].entry_changes) {
    tails.insert(change.block);
  }
  return tails;
}

// Calls visit(row, index, block) for every block that is added to a table, as its entry `index`.
template <typename Visit>
void ForNewBlocks(StepPlan& plan, const World& world, Visit visit) {
  LayerGroupChange& change = plan.layer_groups[0];
  auto block = change.new_blocks.begin();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const auto table = world.tables.find(plan.rows[i].sequence_id);
    const size_t begin = table == world.tables.end() ? 0 : table->second.size();
    for (uint32_t n = 0; n < change.new_block_counts[i]; ++n) {
      visit(plan.rows[i], static_cast<uint32_t>(begin) + n, *block++);
    }
  }
}

uint32_t SkipCopies(StepPlan& plan, World&) {
  const size_t count = CopiesOf(plan).size();
  CopiesOf(plan).clear();
  return count;
}

uint32_t SkipCopiesOfSamples(StepPlan& plan, World&) {
  const std::set<BlockId> tails = CopiedTails(plan);
  return std::erase_if(CopiesOf(plan),
                       [&](const BlockCopy& copy) { return tails.contains(copy.destination); });
}

// The sample writes into the block that it shares.
uint32_t WriteWithoutCopy(StepPlan& plan, World& world) {
  const uint32_t count = SkipCopiesOfSamples(plan, world);
  plan.layer_groups[0].entry_changes.clear();
  return count;
}

uint32_t CopyAfterRows(StepPlan& plan, World& world) {
  const size_t count = CopiesOf(plan).size();
  std::swap(CopiesOf(plan), world.late);
  return count;
}

uint32_t CopyOneTokenLess(StepPlan& plan, World&) {
  const size_t count = CopiesOf(plan).size();
  std::erase_if(CopiesOf(plan), [](BlockCopy& copy) { return --copy.token_count == 0; });
  return count;
}

uint32_t CopyAnotherBlock(StepPlan& plan, World&) {
  const size_t count = CopiesOf(plan).size();
  for (BlockCopy& copy : CopiesOf(plan)) {
    copy.source = BlockId(copy.source.value() == 0 ? 1 : copy.source.value() - 1);
  }
  std::erase_if(CopiesOf(plan),
                [](const BlockCopy& copy) { return copy.source == copy.destination; });
  return count;
}

// A hit believed to be one token longer than what the block it is copied from has in common.
uint32_t HitOneTokenMore(StepPlan& plan, World& world) {
  uint32_t planted = 0;
  const std::set<BlockId> tails = CopiedTails(plan);
  std::map<SequenceId, BlockId> copied;  // whose hit ends in a copy
  ForNewBlocks(plan, world, [&](const PlanRow& row, uint32_t index, BlockId block) {
    if (index == row.first_position / world.block_size) copied[row.sequence_id] = block;
  });
  auto token = plan.token_ids.begin();
  for (PlanRow& row : plan.rows) {
    for (BlockCopy& copy : CopiesOf(plan)) {
      if (tails.contains(copy.destination) || !copied.contains(row.sequence_id) ||
          copied[row.sequence_id] != copy.destination || row.token_count - row.feeds_sampled < 2 ||
          copy.token_count == world.block_size) {
        continue;
      }
      ++copy.token_count;
      ++row.first_position;
      --row.token_count;
      token = plan.token_ids.erase(token);
      ++planted;
    }
    token += row.token_count - row.feeds_sampled;
  }
  return planted;
}

// A block is given out while another sequence still has it.
uint32_t FreeEarly(StepPlan& plan, World& world) {
  uint32_t planted = 0;
  ForNewBlocks(plan, world, [&](const PlanRow& row, uint32_t index, BlockId& block) {
    const std::vector<BlockId>* other = world.DrawOther(row.sequence_id);
    if (index * world.block_size < row.first_position || other == nullptr || !world.Chance())
      return;
    block = (*other)[world.random() % other->size()];
    ++planted;
  });
  return planted;
}

// A hit on a block that was given to somebody else meanwhile.
uint32_t HitStale(StepPlan& plan, World& world) {
  uint32_t planted = 0;
  ForNewBlocks(plan, world, [&](const PlanRow& row, uint32_t index, BlockId& block) {
    if (index >= row.first_position / world.block_size || row.token_count == 0 || !world.Chance())
      return;
    const BlockId other(static_cast<uint32_t>(world.random() % world.block_count));
    planted += other != block;
    block = other;
  });
  return planted;
}

// A hit on another prefix of the same length, as if both had one hash and nobody compared tokens.
uint32_t HitAnotherPrefix(StepPlan& plan, World& world) {
  uint32_t planted = 0;
  const std::vector<BlockId>* other = nullptr;
  ForNewBlocks(plan, world, [&](const PlanRow& row, uint32_t index, BlockId& block) {
    if (index == 0) other = world.DrawOther(row.sequence_id);
    const uint32_t hit = row.first_position / world.block_size;
    if (index >= hit || row.token_count == 0 || other == nullptr || other->size() < hit) return;
    planted += block != (*other)[index];
    block = (*other)[index];
  });
  return planted;
}

// Plants one kind of fault in the plans of one run.
class Saboteur {
 public:
  Saboteur(Plant plant, uint64_t seed) : plant_(plant) { world_.random.seed(seed); }

  void Start(const ReplicaReady& replica) {
    world_.block_size = replica.layer_groups[0].layout.block_size;
    world_.block_count = replica.layer_groups[0].block_count;
  }
  void Spoil(StepPlan& plan) {
    if (plan.step <= last_step_) return;  // sent again: the worker answers from memory
    last_step_ = plan.step;
    if (plan.resets_state) world_.tables.clear();
    for (const SequenceId id : plan.releases) world_.tables.erase(id);
    planted_ += plant_(plan, world_);
    ForNewBlocks(plan, World(), [&](const PlanRow& row, uint32_t, BlockId block) {
      world_.tables[row.sequence_id].push_back(block);
    });
    for (const TableEntryChange& it : plan.layer_groups[0].entry_changes) {
      world_.tables[it.sequence_id][it.index] = it.block;
    }
    uint64_t& digest = plan.layer_groups[0].digest = 0;
    for (const auto& [id, table] : world_.tables) {
      for (uint32_t i = 0; i < table.size(); ++i) digest += EntryDigest(id, i, table[i]);
    }
  }
  uint64_t planted() const { return planted_; }

 private:
  Plant plant_;
  World world_;
  StepNumber last_step_;
  uint64_t planted_ = 0;
};

struct Kind {
  const char* name;
  Plant plant;
};

class PlantedFaultsTest : public testing::TestWithParam<Kind> {};

struct Verdict {
  uint64_t planted = 0;
  absl::Status status;
};

Verdict RunWith(Plant plant, uint64_t seed) {
  Saboteur saboteur(plant, seed);
  SimulationOptions options{.seed = seed, .faults = false};
  options.on_replica = [&](const ReplicaReady& replica, const EngineOptions&) {
    saboteur.Start(replica);
  };
  options.spoil_plan = [&](StepPlan& plan) { saboteur.Spoil(plan); };
  const SimulationReport report = Simulation(options).Run(600);
  return {saboteur.planted(), report.status};
}

// One fault may change nothing: nobody reads the block again, or both blocks hold the same.
TEST_P(PlantedFaultsTest, ChangeAStream) {
  uint32_t runs = 0;
  uint32_t caught = 0;
  std::string first;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Verdict verdict = RunWith(GetParam().plant, seed);
    if (verdict.planted == 0) continue;
    ++runs;
    caught += !verdict.status.ok();
    if (first.empty()) first = verdict.status.ToString();
  }
  std::cout << "caught in " << caught << " of " << runs << " runs; " << first << "\n";
  EXPECT_GE(runs, 10u);
  EXPECT_GT(4 * caught, 3 * runs);
}

TEST(NoPlantedFaultTest, ChangesNothing) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const absl::Status status = RunWith([](StepPlan&, World&) { return 0u; }, seed).status;
    EXPECT_TRUE(status.ok()) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlantedFaultsTest,
                         testing::Values(Kind{"NothingCopied", SkipCopies},
                                         Kind{"NothingCopiedForSamples", SkipCopiesOfSamples},
                                         Kind{"SampleWritesIntoASharedBlock", WriteWithoutCopy},
                                         Kind{"CopiedAfterItsRows", CopyAfterRows},
                                         Kind{"OneTokenLessCopied", CopyOneTokenLess},
                                         Kind{"AnotherBlockCopied", CopyAnotherBlock},
                                         Kind{"HitOneTokenLonger", HitOneTokenMore},
                                         Kind{"BlockFreedEarly", FreeEarly},
                                         Kind{"HitOnAStaleBlock", HitStale},
                                         Kind{"HitOnAPrefixWithTheSameHash", HitAnotherPrefix}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace octavo
