#include "common/model/tokenizer_from_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/tokenizer.h"
#include "tests/unit/common/model/gguf_builder.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A vocabulary of five tokens, without the key named `without`.
GgufBuilder Metadata(const std::string& without = "", const std::string& pre = "smollm") {
  GgufBuilder builder;
  const auto wanted = [&](const std::string& name) { return name != without; };
  if (wanted("model")) builder.String("tokenizer.ggml.model", "gpt2");
  if (wanted("pre")) builder.String("tokenizer.ggml.pre", pre);
  if (wanted("tokens")) {
    builder.Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|im_end|>", "<tool>"});
  }
  if (wanted("merges")) builder.Strings("tokenizer.ggml.merges", {"a b"});
  if (wanted("token_type")) {
    builder.Array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {1, 1, 1, 3, 4});
  }
  if (wanted("bos")) builder.Scalar<uint32_t>("tokenizer.ggml.bos_token_id", GgufType::kU32, 4);
  if (wanted("eos")) builder.Scalar<uint32_t>("tokenizer.ggml.eos_token_id", GgufType::kU32, 3);
  return builder;
}

absl::StatusOr<TokenizerSpec> Read(GgufBuilder builder) {
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  if (!file.ok()) return file.status();
  return TokenizerSpecFromGguf(**file);
}

TEST(TokenizerFromGgufTest, EveryKeyIsRead) {
  GgufBuilder builder = Metadata();
  builder.Scalar<uint32_t>("tokenizer.ggml.eot_token_id", GgufType::kU32, 2)
      .Scalar<uint32_t>("tokenizer.ggml.padding_token_id", GgufType::kU32, 1)
      .Bool("tokenizer.ggml.add_bos_token", 1)
      .Bool("tokenizer.ggml.add_space_prefix", 1);
  const TokenizerSpec spec = Read(builder).value();
  EXPECT_EQ(spec.model, "gpt2");
  EXPECT_EQ(spec.pre_tokenizer, "smollm");
  EXPECT_THAT(spec.tokens, ElementsAre("a", "b", "ab", "<|im_end|>", "<tool>"));
  EXPECT_THAT(spec.types, ElementsAre(TokenType::kNormal, TokenType::kNormal, TokenType::kNormal,
                                      TokenType::kControl, TokenType::kUserDefined));
  EXPECT_THAT(spec.merges, ElementsAre("a b"));
  EXPECT_EQ(spec.bos_id, 4);
  EXPECT_EQ(spec.eos_id, 3);
  EXPECT_EQ(spec.eot_id, 2);
  EXPECT_EQ(spec.pad_id, 1);
  EXPECT_TRUE(spec.add_bos);
  EXPECT_TRUE(spec.add_space_prefix);
}

TEST(TokenizerFromGgufTest, WhatIsReadMakesATokenizer) {
  const auto tokenizer = Tokenizer::Create(Read(Metadata()).value()).value();
  EXPECT_THAT(tokenizer->Encode("ab<|im_end|>a", {.parse_special = true}).value(),
              ElementsAre(2, 3, 0));
}

TEST(TokenizerFromGgufTest, AFileThatDoesNotSayAddsBosOnlyForLlama3) {
  EXPECT_FALSE(Read(Metadata())->add_bos);
  EXPECT_TRUE(Read(Metadata("", "llama-bpe"))->add_bos);
  EXPECT_FALSE(Read(Metadata("bos", "llama-bpe"))->add_bos);
  GgufBuilder says_no = Metadata("", "llama-bpe");
  says_no.Bool("tokenizer.ggml.add_bos_token", 0);
  EXPECT_FALSE(Read(says_no)->add_bos);
}

TEST(TokenizerFromGgufTest, AMissingKeyIsNamed) {
  for (const char* name : {"model", "pre", "tokens", "merges"}) {
    const auto spec = Read(Metadata(name));
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(spec.status().message()),
                HasSubstr(std::string("tokenizer.ggml.") + name));
  }
}

TEST(TokenizerFromGgufTest, TypesAndIdsOutOfRangeAreRefusedByKeyAndValue) {
  GgufBuilder types = Metadata("token_type");
  types.Array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {1, 1, 257, 3, 4});
  EXPECT_EQ(Read(types).status().message(),
            "tokenizer.ggml.token_type[2] is 257; token types are 1 to 6");
  GgufBuilder id = Metadata("eos");
  id.Scalar<uint32_t>("tokenizer.ggml.eos_token_id", GgufType::kU32, 4'294'967'295);
  EXPECT_EQ(Read(id).status().message(),
            "tokenizer.ggml.eos_token_id is 4294967295; ids are 0 to 2147483647");
}

TEST(TokenizerFromGgufTest, AnotherModelIsLeftToCreateToRefuse) {
  GgufBuilder builder;
  builder.String("tokenizer.ggml.model", "llama");
  const TokenizerSpec spec = Read(builder).value();
  EXPECT_EQ(Tokenizer::Create(spec).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace octavo
