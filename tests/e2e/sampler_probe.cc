// Answers the sampler's questions for tests/e2e/test_sampler.py: one JSON object a line in, one
// out.
//   {"logits": [..], "positions": [..], "seed": N, "temperature": .., "top_k": .., "top_p": ..,
//    "min_p": .., "repetition": .., "presence": .., "frequency": .., "bias": [[ID, BIAS], ..],
//    "history": [[ID, OUTPUT COUNT, PROMPT COUNT], ..], "masked": [ID, ..], "top": N}
//   ->  {"tokens": [ID per position], "logprobs": [of each], "top": [[ID, LOGPROB], ..]}
// A row that is not finite answers {"error": "non-finite"}.

#include <glog/logging.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/fp_env.h"
#include "kernels/sampler.h"

namespace octavo::kernels {
namespace {

nlohmann::json Answer(const nlohmann::json& question) {
  std::vector<float> logits = question["logits"];
  std::vector<TokenBias> biases;
  for (const auto& entry : question["bias"]) biases.push_back({entry[0], entry[1]});
  std::vector<TokenHistory> history;
  for (const auto& entry : question["history"]) {
    history.push_back({entry[0], entry[1], entry[2]});
  }
  const std::vector<int32_t> masked = question["masked"];
  std::vector<float> saved(biases.size() + history.size() + masked.size());
  const SamplerRow row{.logits = logits.data(),
                       .wants_logprobs = true,
                       .top_count = question["top"],
                       .temperature = question["temperature"],
                       .top_k = question["top_k"],
                       .top_p = question["top_p"],
                       .min_p = question["min_p"],
                       .repetition_penalty = question["repetition"],
                       .presence_penalty = question["presence"],
                       .frequency_penalty = question["frequency"],
                       .biases = biases.data(),
                       .bias_count = static_cast<int64_t>(biases.size()),
                       .history = history.data(),
                       .history_count = static_cast<int64_t>(history.size()),
                       .masked_tokens = masked.data(),
                       .masked_count = static_cast<int64_t>(masked.size()),
                       .saved = saved.data(),
                       .seed = question["seed"]};
  nlohmann::json answer = {{"tokens", nlohmann::json::array()},
                           {"logprobs", nlohmann::json::array()},
                           {"top", nlohmann::json::array()}};
  SamplerResult result;
  for (const uint64_t position : question["positions"]) {
    SamplerRow at = row;
    at.position = position;
    SamplerFor(DetectIsa())({&at, &result, 1, static_cast<int64_t>(logits.size())}, {0, 1});
    if (result.status == SamplerStatus::kNonFinite) return {{"error", "non-finite"}};
    answer["tokens"].push_back(result.token_id);
    answer["logprobs"].push_back(result.logprob);
  }
  for (int32_t i = 0; i < result.top_count; ++i) {
    answer["top"].push_back({result.top_tokens[i], result.top_logprobs[i]});
  }
  return answer;
}

}  // namespace
}  // namespace octavo::kernels

int main(int, char** argv) {
  google::InitGoogleLogging(argv[0]);
  const octavo::kernels::FlushDenormals mode;
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << octavo::kernels::Answer(nlohmann::json::parse(line)).dump() << '\n';
  }
  return 0;
}
