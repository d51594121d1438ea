#include "common/wire/step_codec.h"

#include <gtest/gtest.h>

#include <random>

namespace octavo::wire {
namespace {

using Rng = std::mt19937_64;

uint32_t Below(Rng& rng, uint32_t limit) {
  return std::uniform_int_distribution<uint32_t>(0, limit - 1)(rng);
}

std::vector<TokenId> RandomTokens(Rng& rng, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(Below(rng, 50'000));
  return tokens;
}

SamplingParams RandomSampling(Rng& rng) {
  SamplingParams params;
  params.temperature = static_cast<float>(Below(rng, 200)) / 100;
  params.top_k = Below(rng, 50);
  params.top_p = 0.5f;
  params.min_p = 0.1f;
  params.repetition_penalty = 1.25f;
  params.presence_penalty = -0.5f;
  params.frequency_penalty = 0.75f;
  for (TokenId token = 3; token < 10; token += 3) params.logit_bias.emplace_back(token, -2.5f);
  params.min_tokens = Below(rng, 5);
  params.stop_token_ids = RandomTokens(rng, Below(rng, 4));
  if (Below(rng, 2) == 0) params.logprobs = Below(rng, 20);
  return params;
}

StepPlan RandomPlan(Rng& rng) {
  StepPlan plan{.replica_id = ReplicaId(Below(rng, 4)),
                .epoch = Epoch(rng()),
                .step = StepNumber(rng()),
                .resets_state = Below(rng, 2) == 0};
  for (uint32_t i = Below(rng, 4); i > 0; --i) plan.releases.emplace_back(rng());
  for (uint32_t i = Below(rng, 3); i > 0; --i) {
    plan.starts.push_back({.sequence_id = SequenceId(rng()),
                           .seed = rng(),
                           .prompt_token_count = Below(rng, 1000),
                           .sampling = RandomSampling(rng),
                           .history = RandomTokens(rng, Below(rng, 20))});
  }
  LayerGroupChange group{.layer_group = LayerGroup(0), .digest = rng()};
  for (uint32_t i = Below(rng, 20); i > 0; --i) {
    const PlanRow row{.sequence_id = SequenceId(rng()),
                      .first_position = Below(rng, 8000),
                      .token_count = 1 + Below(rng, 9),
                      .samples = Below(rng, 2) == 0,
                      .feeds_sampled = Below(rng, 2) == 0,
                      .scores = Below(rng, 2) == 0};
    plan.rows.push_back(row);
    for (TokenId token : RandomTokens(rng, row.token_count - (row.feeds_sampled ? 1 : 0))) {
      plan.token_ids.push_back(token);
    }
    group.new_block_counts.push_back(Below(rng, 3));
    for (uint32_t j = group.new_block_counts.back(); j > 0; --j) {
      group.new_blocks.emplace_back(Below(rng, 1000));
    }
  }
  group.entry_changes.push_back(
      {.sequence_id = SequenceId(rng()), .index = 3, .block = BlockId(9)});
  group.copies.push_back({.source = BlockId(1), .destination = BlockId(2), .token_count = 7});
  plan.layer_groups.push_back(group);
  return plan;
}

StepResult RandomResult(Rng& rng) {
  StepResult result{.replica_id = ReplicaId(1),
                    .epoch = Epoch(rng()),
                    .step = StepNumber(rng()),
                    .rank = Below(rng, 8),
                    .digests = {rng(), rng()},
                    .failed = {SequenceId(rng())},
                    .timings = {.prepare_ns = rng(), .forward_ns = rng(), .sample_ns = rng()}};
  for (auto* outcomes : {&result.sampled, &result.scored}) {
    for (uint32_t i = Below(rng, 10); i > 0; --i) {
      outcomes->push_back({.sequence_id = SequenceId(rng()),
                           .position = Below(rng, 8000),
                           .token_id = static_cast<TokenId>(Below(rng, 50'000)),
                           .logprob = -0.1f * static_cast<float>(Below(rng, 100)),
                           .top_count = Below(rng, 4)});
      for (uint32_t j = outcomes->back().top_count; j > 0; --j) {
        result.top.push_back(
            {.token_id = static_cast<TokenId>(Below(rng, 50'000)), .logprob = -1.5f});
      }
    }
  }
  return result;
}

TEST(StepCodecTest, PlansSurviveTheWire) {
  Rng rng(1);
  for (int i = 0; i < 500; ++i) {
    const StepPlan plan = RandomPlan(rng);
    v1::StepPlan message, received;
    EncodePlan(plan, message);
    ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
    const absl::StatusOr<StepPlan> decoded = DecodePlan(received);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(*decoded, plan);
  }
}

TEST(StepCodecTest, ResultsSurviveTheWire) {
  Rng rng(2);
  for (int i = 0; i < 500; ++i) {
    const StepResult result = RandomResult(rng);
    v1::StepResult message, received;
    EncodeResult(result, message);
    ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
    const absl::StatusOr<StepResult> decoded = DecodeResult(received);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(*decoded, result);
  }
}

TEST(StepCodecTest, AnAbsentFieldTakesTheValuesDefault) {
  const absl::StatusOr<SamplingParams> params = DecodeSampling(v1::SamplingParams());
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(*params, SamplingParams());
}

// Any column cut by one entry must be noticed: nothing may be read past an end or silently dropped.
TEST(StepCodecTest, RefusesColumnsThatDisagree) {
  Rng rng(3);
  StepPlan plan;
  do {
    plan = RandomPlan(rng);
  } while (plan.rows.size() < 3 || plan.layer_groups[0].new_blocks.empty());
  v1::StepPlan whole;
  EncodePlan(plan, whole);
  int columns = 0;
  const auto refuses_cut = [&](const std::string& group_or_plan,
                               const google::protobuf::Message& of, auto mutate) {
    const auto* reflection = of.GetReflection();
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    reflection->ListFields(of, &fields);
    for (const auto* field : fields) {
      if (!field->is_repeated() || field->cpp_type() == field->CPPTYPE_MESSAGE) continue;
      if (field->name() == "released_sequence_ids") continue;  // a list of its own
      v1::StepPlan cut = whole;
      mutate(cut).GetReflection()->RemoveLast(&mutate(cut), field);
      const absl::Status status = DecodePlan(cut).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << group_or_plan << field->name();
      ++columns;
    }
  };
  refuses_cut("plan.", whole, [](v1::StepPlan& p) -> google::protobuf::Message& { return p; });
  refuses_cut("group.", whole.layer_groups(0), [](v1::StepPlan& p) -> google::protobuf::Message& {
    return *p.mutable_layer_groups(0);
  });
  EXPECT_EQ(columns, 5 + 8);
}

TEST(StepCodecTest, RefusesARowWithoutTokensAndUnknownFlags) {
  v1::StepPlan message;
  message.add_sequence_ids(1);
  message.add_first_positions(0);
  message.add_token_counts(0);
  message.add_row_flags(0);
  EXPECT_EQ(DecodePlan(message).status().message(),
            "token_counts[0] is 0; a row computes at least 1 token, unless it shares logits");
  message.set_row_flags(0, v1::ROW_FLAG_SHARES_LOGITS | v1::ROW_FLAG_SAMPLES);
  EXPECT_TRUE(DecodePlan(message).ok());
  message.set_token_counts(0, 1);
  EXPECT_EQ(DecodePlan(message).status().message(),
            "token_counts[0] is 1; a row that shares logits computes none");
  message.set_row_flags(0, 16);
  EXPECT_EQ(DecodePlan(message).status().message(), "row_flags holds 16; known bits are 15");
}

TEST(StepCodecTest, PlansOf256DecodingSequencesStayUnder4KiB) {
  StepPlan plan{.epoch = Epoch(3), .step = StepNumber(1'000'000)};
  LayerGroupChange group;
  for (uint32_t i = 0; i < 256; ++i) {
    plan.rows.push_back({.sequence_id = SequenceId(10'000 + i),
                         .first_position = 1000 + i,
                         .token_count = 1,
                         .samples = true,
                         .feeds_sampled = true});
    group.new_block_counts.push_back(i % 16 == 0);
    if (i % 16 == 0) group.new_blocks.emplace_back(20'000 + i);
  }
  plan.layer_groups.push_back(group);
  v1::StepPlan message;
  EncodePlan(plan, message);
  EXPECT_LT(message.ByteSizeLong(), 4096u);
}

}  // namespace
}  // namespace octavo::wire
