// What golden traces show badly: answers that are nonsense, and the views of AdminService.

#include "scheduler/core/engine.h"

#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr KvLayout kLayout{.block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 8};

EngineOptions Options() {
  EngineOptions options;
  options.context_length = 100;
  options.vocab_size = 1000;
  options.max_sequences = 4;
  options.step_trace_length = 3;
  options.ended_request_count = 2;
  return options;
}

class EngineTest : public testing::Test {
 protected:
  void Ready() { Send(ReplicaReady{ReplicaId(0), Epoch(++epoch_), {{kLayout, 16}}}); }
  void Send(Event event) {
    engine_.Handle(std::move(event), now_, actions_);
    EXPECT_TRUE(engine_.CheckInvariants().ok()) << engine_.CheckInvariants();
  }
  RequestId Submit(std::vector<TokenId> prompt,
                   const std::function<void(SubmitRequest&)>& change = nullptr) {
    SubmitRequest request{.request_id = RequestId(++last_request_), .prompt = std::move(prompt)};
    request.max_tokens = 4;
    if (change) change(request);
    Send(request);
    return request.request_id;
  }
  StepPlan Plan() {
    EXPECT_TRUE(engine_.PlanNext(now_, actions_));
    return std::get<SendPlan>(actions_.back()).plan;
  }
  // What a worker would answer: token 50 + position, scores of -1, no alternatives.
  static StepResult Answer(const StepPlan& plan) {
    StepResult result{.replica_id = plan.replica_id, .epoch = plan.epoch, .step = plan.step};
    result.digests = {plan.layer_groups[0].digest};
    for (const PlanRow& row : plan.rows) {
      const uint32_t end = row.first_position + row.token_count;
      for (uint32_t p = row.first_position + 1; row.scores && p < end; ++p) {
        result.scored.push_back({row.sequence_id, p, 7, -1.0f, 0});
      }
      if (row.samples) {
        result.sampled.push_back({row.sequence_id, end, static_cast<TokenId>(50 + end), 0, 0});
      }
    }
    return result;
  }
  template <typename T>
  std::vector<T> Of() const {
    std::vector<T> found;
    for (const Action& action : actions_) {
      if (const T* it = std::get_if<T>(&action)) found.push_back(*it);
    }
    return found;
  }

  Engine engine_{Options()};
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Action> actions_;
  uint64_t epoch_ = 0;
  uint64_t last_request_ = 0;
};

struct Nonsense {
  const char* name;
  std::function<void(StepResult&)> spoil;
  const char* complaint;
};

class NonsenseTest : public EngineTest, public testing::WithParamInterface<Nonsense> {};

TEST_P(NonsenseTest, AReplicaThatAnswersNonsenseIsGivenUpAndNothingIsApplied) {
  Ready();
  Submit({1, 2, 3, 4, 5}, [](SubmitRequest& it) { it.prompt_logprobs = true; });
  Submit({6, 7, 8});
  StepResult result = Answer(Plan());
  ASSERT_EQ(result.sampled.size(), 2u);
  ASSERT_EQ(result.scored.size(), 4u);
  GetParam().spoil(result);
  actions_.clear();
  Send(StepCompleted{result});
  ASSERT_EQ(Of<ReplicaRejected>().size(), 1u);
  EXPECT_THAT(std::string(Of<ReplicaRejected>()[0].status.message()),
              HasSubstr(GetParam().complaint));
  EXPECT_TRUE(Of<TokensGenerated>().empty());
  EXPECT_TRUE(Of<RequestFinished>().empty());
  EXPECT_FALSE(engine_.replica_ready());
  // Both begin again on the next one.
  Ready();
  for (int i = 0; i < 2; ++i) Send(StepCompleted{Answer(Plan())});
  EXPECT_EQ(Of<TokensGenerated>().size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(
    Results, NonsenseTest,
    testing::Values(
        Nonsense{"OtherTables", [](StepResult& it) { ++it.digests[0]; }, "ran on block tables"},
        Nonsense{"TokenMissing", [](StepResult& it) { it.sampled.pop_back(); },
                 "has no token for position 3 of sequence 2"},
        Nonsense{"TokensSwapped", [](StepResult& it) { std::swap(it.sampled[0], it.sampled[1]); },
                 "has no token for position 5 of sequence 1"},
        Nonsense{"WrongPosition", [](StepResult& it) { ++it.sampled[0].position; },
                 "has no token for position 5 of sequence 1"},
        Nonsense{"NegativeToken", [](StepResult& it) { it.sampled[1].token_id = -1; },
                 "holds token -1; the vocabulary has 1000"},
        Nonsense{"TokenOutOfTheVocabulary", [](StepResult& it) { it.sampled[0].token_id = 1000; },
                 "holds token 1000; the vocabulary has 1000"},
        Nonsense{"ScoredTokenOutOfTheVocabulary",
                 [](StepResult& it) { it.scored[0].token_id = 1001; },
                 "holds token 1001; the vocabulary has 1000"},
        Nonsense{"AlternativeOutOfTheVocabulary",
                 [](StepResult& it) {
                   it.sampled[0].top_count = 1;
                   it.top = {{1002, -1}};
                 },
                 "holds token 1002; the vocabulary has 1000"},
        Nonsense{"TokenTooMany", [](StepResult& it) { it.sampled.push_back(it.sampled[0]); },
                 "has 1 sampled and 0 scored tokens that nobody asked for"},
        Nonsense{"ScoreMissing", [](StepResult& it) { it.scored.pop_back(); },
                 "scores 3 of 4 tokens of sequence 1"},
        Nonsense{"ScoreOfAnotherPosition", [](StepResult& it) { ++it.scored[1].position; },
                 "scores position 3 of sequence 1 where 2 was expected"},
        Nonsense{"AlternativesNobodyAskedFor",
                 [](StepResult& it) {
                   it.sampled[0].top_count = 2;
                   it.top = {{1, -1}, {2, -1}};
                 },
                 "has 2 alternatives where 0 were asked for, at position 5 of sequence 1"},
        Nonsense{"ScoresWithAlternativesNobodyAskedFor",
                 [](StepResult& it) {
                   it.scored[1].top_count = 1;
                   it.top = {{1, -1}};
                 },
                 "has 1 alternatives where 0 were asked for, at position 2 of sequence 1"},
        Nonsense{"AlternativesOfNoToken", [](StepResult& it) { it.top = {{1, -1}}; },
                 "has 1 alternatives where its tokens say 0"}),
    [](const auto& info) { return info.param.name; });

// The next replica numbers its blocks and prefixes as the lost one did.
TEST_F(EngineTest, AHitRememberedOnALostReplicaIsNotOneOnTheNext) {
  const auto prompt = [](TokenId first, uint32_t count) {
    std::vector<TokenId> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  };
  const auto run = [&](TokenId first) {
    const RequestId id = Submit(prompt(first, 8), [](SubmitRequest& it) { it.max_tokens = 40; });
    Send(StepCompleted{Answer(Plan())});
    return id;
  };
  Ready();
  const RequestId first = run(1);
  const RequestId head = Submit(prompt(1, 64), [](SubmitRequest& it) { it.max_tokens = 1; });
  Plan();  // it would find two blocks, and is short of others
  Send(PauseRequest{head});
  Send(ReplicaLost{ReplicaId(0), Epoch(epoch_), absl::UnavailableError("gone")});
  Send(CancelRequest{.request_id = first});
  Ready();
  const RequestId other = run(1000);
  Send(ResumeRequest{head});
  Send(StepCompleted{Answer(Plan())});
  Send(CancelRequest{.request_id = other});
  actions_.clear();
  Plan();
  ASSERT_EQ(Of<RequestAdmitted>().size(), 1u);
  EXPECT_EQ(Of<RequestAdmitted>()[0].request_id, head);
  EXPECT_EQ(Of<RequestAdmitted>()[0].cached_token_count, 0u);
}

TEST_F(EngineTest, AlternativesFollowTheirTokens) {
  Ready();
  Submit({1, 2, 3}, [](SubmitRequest& it) {
    it.prompt_logprobs = true;
    it.sampling.logprobs = 1;
  });
  Submit({4, 5}, [](SubmitRequest& it) { it.sampling.logprobs = 2; });
  StepResult result = Answer(Plan());
  result.sampled[0].top_count = 1;
  result.sampled[1].top_count = 2;
  result.scored[0].top_count = 1;
  result.scored[1].top_count = 1;
  result.top = {{10, -1}, {20, -1}, {21, -2}, {30, -1}, {31, -1}};
  Send(StepCompleted{result});
  const TokensGenerated generated = Of<TokensGenerated>().at(0);
  std::vector<std::vector<TokenId>> alternatives;
  for (const GeneratedToken& token : generated.tokens) {
    alternatives.emplace_back();
    for (uint32_t i = 0; i < token.outcome.top_count; ++i) {
      alternatives.back().push_back(generated.top[token.first_top + i].token_id);
    }
  }
  // The first request's two scores and its token, then the second's token.
  EXPECT_THAT(alternatives,
              ElementsAre(ElementsAre(30), ElementsAre(31), ElementsAre(10), ElementsAre(20, 21)));
}

TEST_F(EngineTest, AStartCarriesTheHistoryOnlyWhereItIsNeeded) {
  Ready();
  Submit({1, 2, 3});
  Submit({4, 5}, [](SubmitRequest& it) { it.sampling.repetition_penalty = 1.1f; });
  Submit({6, 7}, [](SubmitRequest& it) { it.prompt_logprobs = true; });
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.starts.size(), 3u);
  EXPECT_THAT(plan.starts[0].history, ElementsAre());
  EXPECT_THAT(plan.starts[1].history, ElementsAre(4, 5));
  EXPECT_THAT(plan.starts[2].history, ElementsAre(6, 7));
  EXPECT_THAT(plan.token_ids, ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST_F(EngineTest, ViewsShowRequestsFromTheQueueToTheirEnd) {
  Ready();
  for (TokenId i = 0; i < 6; ++i) {
    Submit({10 * i, 10 * i + 1, 10 * i + 2, 10 * i + 3, 10 * i + 4}, [&](SubmitRequest& it) {
      it.client_request_id = "client" + std::to_string(i);
      it.seed = 100 + static_cast<uint64_t>(i);
    });
  }
  now_ += absl::Seconds(1);
  Send(StepCompleted{Answer(Plan())});
  Send(PauseRequest{RequestId(5)});
  std::vector<std::string> listed;
  for (const RequestRecord& record : engine_.ListRequests(0, 100)) {
    listed.push_back(record.client_request_id + " " + SequenceStateName(record.state));
  }
  EXPECT_THAT(listed, ElementsAre("client0 running", "client1 running", "client2 running",
                                  "client3 running", "client5 waiting", "client4 paused_waiting"));
  EXPECT_EQ(engine_.ListRequests(4, 1).at(0).client_request_id, "client5");

  const RequestRecord record = engine_.FindRequest("client1").value();
  EXPECT_EQ(record.request_id, RequestId(2));
  EXPECT_EQ(record.seed, 101u);
  EXPECT_EQ(record.output_token_count, 1u);
  EXPECT_EQ(record.computed_token_count, 5u);
  EXPECT_EQ(record.block_count, 2u);
  EXPECT_EQ(record.admitted, now_);

  const BlockTableRecord table = engine_.BlockTableOf(RequestId(2)).value();
  ASSERT_EQ(table.entries.size(), 2u);
  EXPECT_EQ(table.entries[0].filled_token_count, 4u);
  EXPECT_TRUE(table.entries[0].indexed);
  EXPECT_EQ(table.entries[0].prefix_hash.size(), 32u);
  EXPECT_EQ(table.entries[1].filled_token_count, 1u);
  EXPECT_FALSE(table.entries[1].indexed);

  const BlockRecord block = engine_.ListBlocks(table.entries[0].block.value(), 1).at(0);
  EXPECT_EQ(block.state, BlockState::kHeld);
  EXPECT_EQ(block.reference_count, 1u);
  EXPECT_EQ(block.prefix_hash, table.entries[0].prefix_hash);
  EXPECT_EQ(block.parent, std::nullopt);
  EXPECT_THAT(block.first_tokens, ElementsAre(10, 11, 12, 13));
  EXPECT_EQ(engine_.ListBlocks(0, 100).size(), 16u);

  for (const uint64_t id : {1, 2, 3}) Send(CancelRequest{RequestId(id), CancelReason::kAborted});
  EXPECT_EQ(engine_.FindRequest(RequestId(1)), std::nullopt);  // only the last two are kept
  EXPECT_EQ(engine_.FindRequest("client1")->finish_reason, FinishReason::kAborted);
  EXPECT_EQ(engine_.FindRequest(RequestId(3))->state, SequenceState::kEnded);
  EXPECT_EQ(engine_.BlockTableOf(RequestId(3)), std::nullopt);
  EXPECT_EQ(engine_.Counters().requests_finished[static_cast<int>(FinishReason::kAborted)], 3u);
}

TEST_F(EngineTest, ACachedBlockKnowsItsParent) {
  Ready();
  Submit({1, 2, 3, 4, 5, 6, 7, 8, 9}, [](SubmitRequest& it) { it.max_tokens = 1; });
  Send(StepCompleted{Answer(Plan())});
  const auto blocks = engine_.ListBlocks(0, 3);
  EXPECT_EQ(blocks[1].state, BlockState::kCached);
  EXPECT_EQ(blocks[1].parent, BlockId(0));
  EXPECT_EQ(blocks[1].valid_from, StepNumber(1));
  EXPECT_EQ(blocks[1].token_count, 4u);
  EXPECT_EQ(blocks[2].state, BlockState::kCached);  // part-filled
  EXPECT_EQ(blocks[2].parent, BlockId(1));
  EXPECT_EQ(blocks[2].token_count, 1u);
  EXPECT_THAT(blocks[2].first_tokens, ElementsAre(9));
  EXPECT_EQ(engine_.ReuseOrder(1), std::vector{BlockId(3)});
  const PrefixLookup found =
      engine_.LookupPrefix(std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "");
  EXPECT_EQ(found.hit_token_count, 9u);
  EXPECT_THAT(found.blocks, ElementsAre(BlockId(0), BlockId(1), BlockId(2)));
}

// The reference counts again, from the views of single blocks and tables.
TEST_F(EngineTest, TheMapOfThePoolCountsEveryBlockOnceHoweverManyCellsItHas) {
  EXPECT_EQ(engine_.MapPool(5), PoolMap());
  Ready();
  Submit({1, 2, 3, 4, 5, 6, 7, 8, 9}, [](SubmitRequest& it) { it.max_tokens = 1; });
  Send(StepCompleted{Answer(Plan())});
  const RequestId a = Submit({1, 2, 3, 4, 5, 6, 7, 8, 20, 21});
  const RequestId b = Submit({1, 2, 3, 4, 30, 31, 32, 33, 34});
  Send(StepCompleted{Answer(Plan())});
  for (uint32_t max_cells = 1; max_cells <= 20; ++max_cells) {
    const PoolMap map = engine_.MapPool(max_cells);
    ASSERT_LE(map.cells.size(), max_cells);
    for (uint32_t i = 0; i < map.cells.size(); ++i) {
      PoolCell cell;
      std::map<RequestId, uint32_t> owned;
      for (const BlockRecord& block :
           engine_.ListBlocks(i * map.blocks_per_cell, map.blocks_per_cell)) {
        cell.free_count += block.state == BlockState::kFree;
        cell.cached_count += block.state == BlockState::kCached;
        cell.held_count += block.state == BlockState::kHeld;
        cell.shared_count += block.reference_count > 1;
        for (const RequestId id : {a, b}) {
          const BlockTableRecord table = engine_.BlockTableOf(id).value();
          for (const BlockTableEntry& entry : table.entries)
            owned[id] += entry.block == block.block && block.reference_count == 1;
        }
      }
      if (owned[a] + owned[b] > 0) cell.owner = owned[a] >= owned[b] ? a : b;
      EXPECT_EQ(map.cells[i], cell) << "cell " << i << " of " << max_cells;
    }
  }
  const PoolMap whole = engine_.MapPool(1);
  EXPECT_EQ(whole.blocks_per_cell, 16u);
  EXPECT_GT(whole.cells[0].shared_count, 0u);
  EXPECT_GT(whole.cells[0].cached_count, 0u);
}

TEST_F(EngineTest, TheStepTraceKeepsTheLastPlansAndWhatBecameOfThem) {
  Ready();
  Submit({1, 2, 3}, [](SubmitRequest& it) { it.max_tokens = 9; });
  for (int i = 0; i < 3; ++i) Send(StepCompleted{Answer(Plan())});
  Plan();
  auto trace = engine_.StepTrace(100);
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[0].plan.step, StepNumber(2));
  EXPECT_EQ(trace[0].result->step, StepNumber(2));
  EXPECT_EQ(trace[2].plan.step, StepNumber(4));
  EXPECT_EQ(trace[2].result, std::nullopt);
  Send(StepRefused{ReplicaId(0), Epoch(1), StepNumber(4), absl::FailedPreconditionError("digest")});
  trace = engine_.StepTrace(1);
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_TRUE(trace[0].rolled_back);
}

TEST_F(EngineTest, TheNextDeadlineIsTheEarliestOfThoseThatLive) {
  EXPECT_EQ(engine_.NextDeadline(), absl::InfiniteFuture());
  const auto due = [&](int seconds) {
    return Submit({1, 2}, [&](SubmitRequest& it) { it.deadline = now_ + absl::Seconds(seconds); });
  };
  due(9);
  const RequestId soon = due(5);
  EXPECT_EQ(engine_.NextDeadline(), now_ + absl::Seconds(5));
  Send(CancelRequest{soon});
  EXPECT_EQ(engine_.NextDeadline(), now_ + absl::Seconds(9));
  now_ += absl::Seconds(9);
  Send(Tick{});
  EXPECT_TRUE(engine_.idle());
}

TEST_F(EngineTest, AReplicaTheEngineCannotUseIsRejected) {
  Send(ReplicaReady{ReplicaId(0), Epoch(1), {{kLayout, 4}, {kLayout, 4}}});
  Send(ReplicaReady{ReplicaId(0), Epoch(2), {{kLayout, 0}}});
  Send(ReplicaReady{ReplicaId(0), Epoch(3), {{KvLayout{.block_size = 999}, 4}}});
  EXPECT_EQ(Of<ReplicaRejected>().size(), 3u);
  EXPECT_FALSE(engine_.replica_ready());
  Send(ReplicaReady{ReplicaId(0), Epoch(3), {{kLayout, 4}}});  // not above the last epoch
  EXPECT_FALSE(engine_.replica_ready());
  Send(ReplicaReady{ReplicaId(0), Epoch(4), {{kLayout, 4}}});
  EXPECT_TRUE(engine_.replica_ready());
}

TEST(EngineOptionsTest, EachFieldOutOfRangeIsNamedWithItsValueAndLimit) {
  const auto message = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options = Options();
    change(options);
    return options.Validate().ToString();
  };
  EXPECT_EQ(message([](EngineOptions&) {}), "OK");
  EXPECT_THAT(message([](EngineOptions& it) { it.context_length = 1; }),
              HasSubstr("context_length is 1; it must be at least 2 tokens"));
  EXPECT_THAT(message([](EngineOptions& it) { it.max_sequences = 0; }),
              HasSubstr("max_sequences is 0"));
  EXPECT_THAT(message([](EngineOptions& it) { it.max_step_tokens = 3; }),
              HasSubstr("max_step_tokens is 3; it must be at least max_sequences (4)"));
  EXPECT_THAT(message([](EngineOptions& it) { it.max_steps_in_flight = 3; }),
              HasSubstr("max_steps_in_flight is 3; it must be 1 or 2"));
  EXPECT_THAT(message([](EngineOptions& it) { it.max_waiting_requests = 0; }),
              HasSubstr("max_waiting_requests is 0"));
  EXPECT_THAT(message([](EngineOptions& it) { it.max_waiting_tokens = 0; }),
              HasSubstr("max_waiting_tokens is 0"));
  EXPECT_THAT(message([](EngineOptions& it) { it.prefix_match_unit = 0; }),
              HasSubstr("prefix_match_unit is 0; it must be at least 1 token"));
  EXPECT_THAT(message([](EngineOptions& it) { it.max_consecutive_resyncs = 0; }),
              HasSubstr("max_consecutive_resyncs is 0"));
}

}  // namespace
}  // namespace octavo
