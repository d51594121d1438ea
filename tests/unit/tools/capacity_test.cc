#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tools/octavo/capacity/capacity_plan.h"
#include "tools/octavo/capacity/model_shape.h"
#include "tools/octavo/capacity/policy_table.h"

namespace octavo::cli {
namespace {

std::string Config(const std::string& type, uint32_t layers, uint32_t width, uint32_t heads,
                   uint32_t kv_heads, uint32_t ffn, uint32_t vocab, uint32_t context, bool tied) {
  return absl::StrCat("{\"model_type\": \"", type, "\", \"num_hidden_layers\": ", layers,
                      ", \"hidden_size\": ", width, ", \"num_attention_heads\": ", heads,
                      ", \"num_key_value_heads\": ", kv_heads, ", \"intermediate_size\": ", ffn,
                      ", \"vocab_size\": ", vocab, ", \"max_position_embeddings\": ", context,
                      ", \"tie_word_embeddings\": ", tied ? "true" : "false",
                      ", \"torch_dtype\": \"bfloat16\"}");
}

const std::string kLlama70B = Config("llama", 80, 8192, 64, 8, 28672, 128256, 8192, /*tied=*/false);

Deployment OneDevice(const ModelShape& model, const std::string& kv_dtype) {
  return {.weight_bytes = model.weight_bytes,
          .kv_memory_bytes = 40ull << 30,
          .kv_dtype = ParseKvDtype(kv_dtype).value(),
          .max_model_len = model.context_length,
          .tokens_per_request = model.context_length};
}

uint64_t BytesPerToken(const std::string& config, const std::string& kv_dtype) {
  const ModelShape model = ParseConfigJson(config).value();
  return PlanCapacity(model, OneDevice(model, kv_dtype)).value().bytes_per_token;
}

// Published parameter counts: 70,553,706,496; 8,030,261,248; 7,615,616,512; 134,515,008.
TEST(ModelShapeTest, CountsTheParametersThatThePublishersCount) {
  const auto count = [](const std::string& config) {
    return ParseConfigJson(config).value().parameter_count;
  };
  EXPECT_EQ(count(kLlama70B), 70'553'706'496u);
  EXPECT_EQ(count(Config("llama", 32, 4096, 32, 8, 14336, 128256, 8192, false)), 8'030'261'248u);
  EXPECT_EQ(count(Config("qwen2", 28, 3584, 28, 4, 18944, 152064, 32768, false)), 7'615'616'512u);
  EXPECT_EQ(count(Config("llama", 30, 576, 9, 3, 1536, 49152, 8192, true)), 134'515'008u);
  EXPECT_EQ(ParseConfigJson(kLlama70B)->weight_bytes, 2 * 70'553'706'496u);
}

TEST(ModelShapeTest, SaysWhichKeyIsWrong) {
  const auto message = [](const std::string& config) {
    return std::string(ParseConfigJson(config).status().message());
  };
  EXPECT_EQ(message("[1]"), "config: it is not a JSON object");
  EXPECT_NE(message("{\"model_type\": \"gpt2\"}").find("\"gpt2\""), std::string::npos);
  EXPECT_EQ(message("{\"model_type\": \"llama\"}"), "config: \"num_hidden_layers\" is missing");
  EXPECT_EQ(message("{\"model_type\": \"llama\", \"num_hidden_layers\": -3}"),
            "config: \"num_hidden_layers\" is -3; it must be a whole number from 1 to 1024");
  EXPECT_EQ(message(Config("llama", 2, 64, 4, 3, 64, 64, 64, true)),
            "config: \"num_key_value_heads\" is 3; it must divide \"num_attention_heads\", 4");
}

TEST(CapacityTest, BytesOfATokenFollowFromTheConfiguration) {
  EXPECT_EQ(BytesPerToken(kLlama70B, "bf16"), 327'680u);
  EXPECT_EQ(BytesPerToken(kLlama70B, "bf16") * 8192, 5ull << 29);  // 2.50 GiB
  EXPECT_EQ(BytesPerToken(kLlama70B, "fp8"), 327'680u / 2);
  EXPECT_EQ(BytesPerToken(kLlama70B, "int8"), 327'680u / 2 + 2 * 80 * 8 * 4);
  EXPECT_EQ(BytesPerToken(Config("llama", 32, 4096, 32, 8, 14336, 128256, 8192, false), "bf16"),
            131'072u);
  EXPECT_EQ(BytesPerToken(Config("qwen2", 28, 3584, 28, 4, 18944, 152064, 32768, false), "bf16"),
            57'344u);
  EXPECT_EQ(BytesPerToken(Config("llama", 30, 576, 9, 3, 1536, 49152, 8192, true), "f16"), 23'040u);
}

TEST(CapacityTest, RanksSplitKvHeadsOrRepeatThem) {
  const ModelShape model = ParseConfigJson(kLlama70B).value();
  Deployment deployment = OneDevice(model, "bf16");
  for (const uint32_t ranks : {1u, 2u, 4u, 8u, 16u}) {
    deployment.tensor_parallel = ranks;
    const Capacity plan = PlanCapacity(model, deployment).value();
    EXPECT_EQ(plan.bytes_per_token, 327'680u);
    EXPECT_EQ(plan.rank_bytes_per_token, std::max(327'680u / ranks, 327'680u / 8)) << ranks;
  }
  deployment.tensor_parallel = 3;
  EXPECT_EQ(PlanCapacity(model, deployment).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CapacityTest, SaysWhatBoundsAndTheAdviceHoldsWhenFollowed) {
  const ModelShape model = ParseConfigJson(kLlama70B).value();
  Deployment deployment{.memory_bytes = 80ull << 30,
                        .weight_bytes = model.weight_bytes,
                        .kv_dtype = ParseKvDtype("bf16").value(),
                        .max_model_len = 8192,
                        .tokens_per_request = 1000};
  EXPECT_EQ(PlanCapacity(model, deployment).status().code(),
            absl::StatusCode::kResourceExhausted);  // 131 GiB of weights on one device
  deployment.tensor_parallel = 2;
  const Capacity two = PlanCapacity(model, deployment).value();
  EXPECT_EQ(two.bound, CapacityBound::kKvMemory);
  const std::vector<CapacityAdvice> advice = AdviseCapacity(model, deployment, two);
  ASSERT_FALSE(advice.empty());
  for (const CapacityAdvice& better : advice) {
    EXPECT_GT(better.usual_requests, two.usual_requests) << better.change;
    if (better.change != "--kv_dtype fp8") continue;
    Deployment changed = deployment;
    changed.kv_dtype = ParseKvDtype("fp8").value();
    EXPECT_EQ(PlanCapacity(model, changed)->usual_requests, better.usual_requests);
  }
  deployment.tensor_parallel = 8;
  const Capacity eight = PlanCapacity(model, deployment).value();
  EXPECT_EQ(eight.bound, CapacityBound::kMaxSequences);
  EXPECT_EQ(eight.usual_requests, 256u);
  EXPECT_EQ(AdviseCapacity(model, deployment, eight)[0].usual_requests, eight.block_count / 63);
  deployment.kv_memory_bytes = 100ull << 20;
  EXPECT_EQ(PlanCapacity(model, deployment)->bound, CapacityBound::kContextLimit);
}

std::vector<RequestLength> Outputs(const std::vector<uint32_t>& lengths) {
  std::vector<RequestLength> requests;
  for (const uint32_t length : lengths) requests.push_back({.output_tokens = length});
  return requests;
}

TEST(PolicyTableTest, PagedAdmitsThirteenWhereReservingTheMaximumAdmitsFour) {
  const auto rows = ComparePolicies(
      Outputs({40, 128, 300, 64, 210, 96, 180, 48, 150, 80, 60, 420, 33, 256, 90, 110}),
      {.block_count = 128, .block_size = 16, .max_model_len = 512});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0], (PolicyRow{KvPolicy::kPaged, 13, 118, 118, 1809}));
  EXPECT_EQ((*rows)[1], (PolicyRow{KvPolicy::kReserveMax, 4, 128, 34, 532}));
}

TEST(PolicyTableTest, PowersOfTwoRoundTheOutputAloneAndStopAtTheLongest) {
  EXPECT_EQ(ReservedTokens(KvPolicy::kReservePow2, 100, 25, 2048), 132u);
  EXPECT_EQ(ReservedTokens(KvPolicy::kReservePow2, 100, 32, 2048), 132u);
  EXPECT_EQ(ReservedTokens(KvPolicy::kReservePow2, 2000, 33, 2048), 2048u);
  EXPECT_EQ(ReservedTokens(KvPolicy::kOracle, 100, 25, 2048), 125u);
}

TEST(PolicyTableTest, NamesTheLengthThatDoesNotFit) {
  const auto rows = ComparePolicies(Outputs({5, 600}), {.block_count = 9, .max_model_len = 512});
  EXPECT_EQ(rows.status().message(), "length 2 is 600; it must be 1 to max_model_len, 512");
}

}  // namespace
}  // namespace octavo::cli
