#include "scheduler/core/kv_events.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/engine.h"
#include "scheduler/core/kv_ledger.h"
#include "tests/unit/scheduler/core/kv_outsider.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

BlockStored Stored(uint32_t block) { return {.block = BlockId(block), .prefix = 1, .tokens = {7}}; }

TEST(KvEventRecorderTest, ABlockIsStoredWhenItsStepIsDone) {
  KvEventRecorder recorder;
  recorder.Begin(Epoch(3), StepNumber(5));
  recorder.OnStored(Stored(0), StepNumber(7));
  recorder.OnStored(Stored(1), StepNumber(6));
  recorder.OnStored(Stored(2), StepNumber(5));
  EXPECT_THAT(recorder.Take(), ElementsAre(KvEvent{Epoch(3), Stored(2)}));
  recorder.CompleteThrough(StepNumber(6));
  EXPECT_THAT(recorder.Take(), ElementsAre(KvEvent{Epoch(3), Stored(1)}));
  recorder.CompleteThrough(StepNumber(7));
  EXPECT_THAT(recorder.Take(), ElementsAre(KvEvent{Epoch(3), Stored(0)}));
}

TEST(KvEventRecorderTest, ABlockWhoseStepFailedNeverWas) {
  KvEventRecorder recorder;
  recorder.Begin(Epoch(1), StepNumber(1));
  recorder.OnStored(Stored(4), StepNumber(2));
  recorder.OnRemoved(BlockId(4));
  recorder.OnStored(Stored(4), StepNumber(3));
  recorder.OnStored(Stored(5), StepNumber(3));
  recorder.OnCleared(KvClearReason::kReset);
  recorder.CompleteThrough(StepNumber(3));
  EXPECT_THAT(recorder.Take(),
              ElementsAre(KvEvent{Epoch(1), BlocksCleared{.reason = KvClearReason::kReset}}));
}

TEST(KvEventRecorderTest, ScopesHaveDigestsOfTheirOwn) {
  EXPECT_EQ(ScopeDigest(""), 0u);
  EXPECT_NE(ScopeDigest("a"), ScopeDigest("b"));
  EXPECT_NE(ScopeDigest(std::string("a\0", 2)), ScopeDigest("a"));
  EXPECT_EQ(ScopeDigest("tenant"), ScopeDigest("tenant"));
}

// A ledger under random operations: sequences that share beginnings, twins, leaves, evictions and
// resets, their blocks indexed when their step is done or ahead of it. One outsider listens from
// the start, another begins anew from a snapshot now and then.
class RandomLedger {
 public:
  RandomLedger(uint64_t seed, uint32_t block_size, uint32_t unit)
      : random_(seed),
        unit_(unit),
        ledger_({.block_size = block_size, .layer_count = 1, .kv_head_count = 1, .head_dim = 8},
                /*block_count=*/24, /*prefix_cache=*/true, unit, seed),
        outsider_(block_size),
        late_(block_size) {
    recorder_.Begin(Epoch(1), StepNumber(0));
    ledger_.RecordInto(&recorder_);
  }

  void Step() {
    switch (Draw(8)) {
      case 0:
      case 1:
      case 2:
        return Admit();
      case 3:
      case 4:
        return Complete();
      case 5:
      case 6:
        return Leave();
      default:
        if (Draw(20) == 0) Reset();
    }
  }

  void Compare() {
    const std::vector<KvEvent> events = recorder_.Take();
    events_ += events.size();
    for (KvOutsider* outsider : {&outsider_, &late_}) {
      const absl::Status applied = outsider->Apply(events);
      ASSERT_TRUE(applied.ok()) << applied;
    }
    if (Draw(50) == 0) StartLate();
    std::vector<BlockRecord> blocks;
    bool is_ahead = false;
    for (uint32_t i = 0; i < ledger_.pool().capacity(); ++i) {
      blocks.push_back(ledger_.Describe(BlockId(i)));
      is_ahead = is_ahead || blocks.back().valid_from > completed_;
    }
    ASSERT_EQ(outsider_.Compare(blocks, completed_), "");
    ASSERT_EQ(late_.Compare(blocks, completed_), "");
    if (is_ahead) return;  // only the ledger finds what a step is still to write
    const std::vector<TokenId> tokens = DrawTokens();
    const std::string scope = DrawScope();
    PrefixHit hit = ledger_.FindPrefix(tokens, scope);
    if (hit.run.token_count > 0) hit.blocks.push_back(hit.run.block);
    for (const KvOutsider* outsider : {&outsider_, &late_}) {
      ASSERT_EQ(outsider->CompareLookup(tokens, scope, unit_, {hit.token_count, hit.blocks}), "");
    }
    hits_ += hit.token_count > 0;
  }

  uint64_t events_ = 0, hits_ = 0;

 private:
  struct Holder {
    std::string scope;
    std::vector<TokenId> tokens;
    StepNumber step;  // that writes them
    BlockTable table;
  };

  uint64_t Draw(uint64_t bound) { return random_() % bound; }
  std::string DrawScope() { return std::string(Draw(3) == 0 ? "salt" : ""); }
  std::vector<TokenId> DrawTokens() {
    std::vector<TokenId> tokens(1 + Draw(4 * ledger_.layout().block_size));
    for (TokenId& token : tokens) token = static_cast<TokenId>(Draw(6) == 0 ? Draw(3) : 1);
    return tokens;
  }

  void StartLate() {
    const PrefixIndex& index = ledger_.index();
    std::vector<BlockStored> indexed;
    index.ListStored(indexed);
    late_ = KvOutsider(ledger_.layout().block_size);
    std::vector<KvEvent> events;
    for (const BlockStored& stored : indexed) {
      if (index.ValidFrom(stored.block) <= completed_) events.push_back({Epoch(1), stored});
    }
    const absl::Status applied = late_.Apply(events);
    ASSERT_TRUE(applied.ok()) << applied;
  }

  void Admit() {
    Holder holder{.scope = DrawScope(), .tokens = DrawTokens()};
    const bool reads = Draw(3) != 0;  // who does not makes twins
    PrefixHit hit = reads ? ledger_.FindPrefix(holder.tokens, holder.scope) : PrefixHit();
    hit.DropRun();
    const uint32_t count = ledger_.layout().BlocksFor(holder.tokens.size()) - hit.block_count();
    if (count + hit.idle_block_count > ledger_.available_count()) return;
    holder.step = StepNumber(completed_.value() + 1 + Draw(2));
    // Nobody reads what a later step than its own writes.
    for (const BlockId block : hit.blocks)
      holder.step = std::max(holder.step, ledger_.index().ValidFrom(block));
    ledger_.Share(hit, holder.table);
    ledger_.Append(count, holder.table);
    if (Draw(2) == 0) Index(holder);
    holders_.push_back(std::move(holder));
  }
  void Index(Holder& holder) {
    ledger_.IndexFull(holder.tokens, static_cast<uint32_t>(holder.tokens.size()), holder.scope,
                      holder.step, holder.table);
  }
  void Complete() {
    completed_ = StepNumber(completed_.value() + 1);
    for (Holder& holder : holders_) {
      if (holder.step == completed_) Index(holder);
    }
    recorder_.CompleteThrough(completed_);
  }
  void Leave() {
    if (holders_.empty()) return;
    const auto at = holders_.begin() + static_cast<ptrdiff_t>(Draw(holders_.size()));
    if (at->step > completed_) return;
    ledger_.IndexLeaf(at->tokens, static_cast<uint32_t>(at->tokens.size()), at->scope, completed_,
                      at->table);
    ledger_.Release(at->table);
    holders_.erase(at);
  }
  void Reset() {
    if (ledger_.ResetPrefixes().ok()) return;
    while (completed_.value() < 1 || !holders_.empty()) {
      Complete();
      Leave();
    }
    ASSERT_TRUE(ledger_.ResetPrefixes().ok());
  }

  std::mt19937_64 random_;
  uint32_t unit_;
  KvLedger ledger_;
  KvEventRecorder recorder_;
  KvOutsider outsider_;
  KvOutsider late_;
  std::vector<Holder> holders_;
  StepNumber completed_;
};

TEST(KvEventsTest, AnOutsidersIndexIsTheLedgersAfterEveryOperation) {
  for (const uint32_t block_size : {1u, 2u, 4u, 7u}) {
    for (const uint32_t unit : {1u, 3u, block_size}) {
      RandomLedger ledger(block_size * 100 + unit, block_size, unit);
      for (int i = 0; i < 3000; ++i) {
        ledger.Step();
        ASSERT_NO_FATAL_FAILURE(ledger.Compare())
            << "block size " << block_size << ", unit " << unit << ", operation " << i;
      }
      EXPECT_GT(ledger.events_, 500u);
      EXPECT_GT(ledger.hits_, 100u);
    }
  }
}

// Scenario row 21. Its pool of N = 5 is one of 4 blocks here, with ids from 0.
TEST(KvEventsTest, Row21StoredWithParentsRemovedWhenEvictedAndCleared) {
  const KvLayout layout{.block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};
  KvLedger ledger(layout, /*block_count=*/4, /*prefix_cache=*/true, /*prefix_match_unit=*/4, 1);
  KvEventRecorder recorder;
  recorder.Begin(Epoch(1), StepNumber(1));
  ledger.RecordInto(&recorder);
  BlockTable table;
  const auto write = [&](const std::vector<TokenId>& tokens) {
    const auto count = static_cast<uint32_t>(tokens.size());
    ledger.Append(layout.BlocksFor(count) - table.size(), table);
    ledger.IndexFull(tokens, count, "", StepNumber(1), table);
  };
  std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  write(tokens);
  std::vector<KvEvent> events = recorder.Take();
  ASSERT_EQ(events.size(), 2u);
  const auto first = std::get<BlockStored>(events[0].change);
  const auto second = std::get<BlockStored>(events[1].change);
  EXPECT_EQ(first.parent_prefix, 0u);
  EXPECT_THAT(first.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(second.parent_prefix, first.prefix);
  EXPECT_THAT(second.tokens, ElementsAre(5, 6, 7, 8));
  tokens.insert(tokens.end(), {11, 12});
  write(tokens);
  events = recorder.Take();
  ASSERT_EQ(events.size(), 1u);
  const auto third = std::get<BlockStored>(events[0].change);
  EXPECT_EQ(third.parent_prefix, second.prefix);
  EXPECT_THAT(third.tokens, ElementsAre(9, 10, 11, 12));
  ledger.Release(table);
  EXPECT_THAT(recorder.Take(), IsEmpty());
  write({21, 22, 23, 24, 25, 26, 27, 28});
  events = recorder.Take();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0], (KvEvent{Epoch(1), BlockRemoved{third.block}}));
  EXPECT_EQ(std::get<BlockStored>(events[1].change).parent_prefix, 0u);
  EXPECT_EQ(std::get<BlockStored>(events[2].change).block, third.block);
  ledger.Release(table);
  ASSERT_TRUE(ledger.ResetPrefixes().ok());
  EXPECT_THAT(recorder.Take(),
              ElementsAre(KvEvent{Epoch(1), BlocksCleared{.reason = KvClearReason::kReset}}));
}

class EngineKvEventsTest : public testing::Test {
 protected:
  static constexpr KvLayout kLayout{
      .block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};

  EngineKvEventsTest() : engine_(Options()) {}
  static EngineOptions Options() {
    EngineOptions options;
    options.context_length = 100;
    options.max_sequences = 4;
    return options;
  }
  void Send(Event event) { engine_.Handle(std::move(event), absl::UnixEpoch(), actions_); }
  void Ready(uint64_t epoch) { Send(ReplicaReady{ReplicaId(0), Epoch(epoch), {{kLayout, 16}}}); }
  void Submit(std::vector<TokenId> prompt) {
    SubmitRequest request{.request_id = RequestId(++requests_), .prompt = std::move(prompt)};
    request.max_tokens = 1;
    Send(std::move(request));
  }
  StepPlan Plan() {
    EXPECT_TRUE(engine_.PlanNext(absl::UnixEpoch(), actions_));
    return std::get<SendPlan>(actions_.back()).plan;
  }
  void Complete(const StepPlan& plan) {
    StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
    result.digests = {plan.layer_groups[0].digest};
    for (const PlanRow& row : plan.rows) {
      if (row.samples)
        result.sampled.push_back({row.sequence_id, row.first_position + row.token_count, 9, 0, 0});
    }
    Send(StepCompleted{std::move(result)});
  }
  // The kinds of what was recorded: s, r, c.
  std::string Kinds() {
    std::string kinds;
    for (const KvEvent& event : engine_.TakeKvEvents()) kinds += "src"[event.change.index()];
    return kinds;
  }

  Engine engine_;
  std::vector<Action> actions_;
  uint64_t requests_ = 0;
};

TEST_F(EngineKvEventsTest, NothingIsRecordedWhileNobodyListens) {
  Ready(1);
  Submit({1, 2, 3, 4, 5});
  Complete(Plan());
  EXPECT_THAT(engine_.TakeKvEvents(), IsEmpty());
  engine_.RecordKvEvents(true);
  EXPECT_THAT(engine_.TakeKvEvents(), IsEmpty());
  engine_.RecordKvEvents(false);
  Send(ResetPrefixCache{});
  EXPECT_THAT(engine_.TakeKvEvents(), IsEmpty());
}

TEST_F(EngineKvEventsTest, ASnapshotSaysWhatIsThereAndHowMuch) {
  Ready(1);
  Submit({1, 2, 3, 4, 5, 6});
  Complete(Plan());
  engine_.RecordKvEvents(true);
  const std::vector<KvEvent> events = engine_.KvSnapshot();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0], (KvEvent{Epoch(1), BlocksCleared{.stored_count = 2}}));
  const auto& first = std::get<BlockStored>(events[1].change);
  const auto& second = std::get<BlockStored>(events[2].change);
  EXPECT_THAT(first.tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(second.tokens, ElementsAre(5, 6));  // a leaf
  EXPECT_EQ(first.parent_prefix, 0u);
  EXPECT_EQ(second.parent_prefix, first.prefix);
}

TEST_F(EngineKvEventsTest, BlocksAreStoredWhenTheirStepIsDone) {
  engine_.RecordKvEvents(true);
  EXPECT_EQ(engine_.KvSnapshot(), std::vector<KvEvent>{KvEvent{.change = BlocksCleared{}}});
  Ready(1);
  Submit({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const StepPlan plan = Plan();
  EXPECT_EQ(Kinds(), "");
  Complete(plan);
  EXPECT_EQ(Kinds(), "sss");
  Send(ResetPrefixCache{});
  EXPECT_EQ(Kinds(), "c");
}

TEST_F(EngineKvEventsTest, AListenerWhoComesDuringAStepHearsOfItsBlocks) {
  Ready(1);
  Submit({1, 2, 3, 4, 5});
  const StepPlan plan = Plan();
  engine_.RecordKvEvents(true);
  EXPECT_EQ(engine_.KvSnapshot().size(), 1u);
  Complete(plan);
  EXPECT_EQ(Kinds(), "ss");
}

TEST_F(EngineKvEventsTest, AReplicasLossClearsAndTheNextOneBeginsAnew) {
  engine_.RecordKvEvents(true);
  Ready(1);
  Submit({1, 2, 3, 4, 5, 6, 7, 8, 9});
  Complete(Plan());
  EXPECT_EQ(Kinds(), "sss");
  Submit({1, 2, 3, 4, 6, 6});
  Plan();
  Send(
      ReplicaLost{.replica_id = ReplicaId(0), .epoch = Epoch(1), .status = absl::UnknownError("")});
  EXPECT_THAT(engine_.TakeKvEvents(),
              ElementsAre(KvEvent{Epoch(1), BlocksCleared{.reason = KvClearReason::kReplicaLost}}));
  Ready(2);
  Submit({1, 2, 3, 4, 5});
  Complete(Plan());
  const std::vector<KvEvent> events = engine_.TakeKvEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].epoch, Epoch(2));
}

}  // namespace
}  // namespace octavo
