#pragma once

// Requests to a small model, and what is said of them when they are refused.

#include <functional>
#include <string>
#include <utility>

#include "common/wire/errors.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "scheduler/rpc/validation.h"
#include "tests/unit/scheduler/runtime/fakes.h"

namespace octavo {

inline constexpr uint32_t kContextLength = 32;
inline constexpr uint64_t kDrawnSeed = 99;

inline ServedModel SmallModel() {
  ServedModel model;
  model.name = "small";
  model.config.context_length = kContextLength;
  model.config.vocab_size = 257;
  TokenizerSpec spec = SmallSpec({}, {{"<end>", TokenType::kControl}});
  spec.eos_id = kEndToken;
  model.tokenizer = *Tokenizer::Create(std::move(spec));
  model.chat_template = *ChatTemplate::Parse(
      "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", "", "<end>");
  return model;
}

// The field a BadRequest names first; empty without one.
inline std::string FieldOf(const absl::Status& status) {
  google::rpc::Status details;
  details.ParseFromString(wire::ToGrpc(status).error_details());
  for (const auto& detail : details.details()) {
    google::rpc::BadRequest bad;
    if (detail.UnpackTo(&bad) && bad.field_violations_size() > 0)
      return bad.field_violations(0).field();
  }
  return "";
}

class ValidationFixture : public testing::Test {
 protected:
  absl::StatusOr<Submission> Parse(const std::function<void(v1::GenerateRequest&)>& change) {
    v1::GenerateRequest request;
    request.set_text("hello");
    change(request);
    return ParseGenerate(request, model_,
                         {.min_priority = 0, .max_priority = 10, .max_sequences = max_sequences_},
                         kDrawnSeed);
  }
  void ExpectBad(const std::string& field, const std::string& message,
                 const std::function<void(v1::GenerateRequest&)>& change) {
    const absl::Status status = Parse(change).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << ": " << status;
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
  }

  const ServedModel model_ = SmallModel();
  uint32_t max_sequences_ = 256;
};

}  // namespace octavo
