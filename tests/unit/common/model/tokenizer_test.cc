#include "common/model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/common/model/small_vocabulary.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kAb = 256, kSpaceAb = 257, kEnd = 258, kBegin = 259, kTool = 260;

TokenizerSpec Spec(const std::string& pre_tokenizer = "gpt2") {
  TokenizerSpec spec = SmallSpec({{"a", "b"}, {" ", "ab"}},
                                 {{"<|im_end|>", TokenType::kControl},
                                  {"<s>", TokenType::kControl},
                                  {"<tool>", TokenType::kUserDefined}},
                                 pre_tokenizer);
  spec.bos_id = kBegin;
  spec.eos_id = kTool;
  return spec;
}

std::vector<TokenId> Encode(const TokenizerSpec& spec, absl::string_view text,
                            const EncodeOptions& options = {}) {
  return Tokenizer::Create(spec).value()->Encode(text, options).value();
}

TEST(TokenizerTest, WordsAreMergedWithinTheirBorders) {
  EXPECT_THAT(Encode(Spec(), "ab ab a b"), ElementsAre(kAb, kSpaceAb, ' ', 'a', ' ', 'b'));
  EXPECT_THAT(Encode(Spec(), ""), IsEmpty());
}

TEST(TokenizerTest, ControlTokensInTextAreTextUnlessSpecialsAreParsed) {
  EXPECT_THAT(Encode(Spec(), "ab<|im_end|>ab", {.parse_special = true}),
              ElementsAre(kAb, kEnd, kAb));
  const std::vector<TokenId> plain = Encode(Spec(), "<|im_end|>");
  EXPECT_EQ(plain.size(), 10u);
  EXPECT_THAT(plain, testing::Not(testing::Contains(kEnd)));
}

TEST(TokenizerTest, UserDefinedTokensAreAlwaysWhole) {
  EXPECT_THAT(Encode(Spec(), "a<tool>b"), ElementsAre('a', kTool, 'b'));
}

TEST(TokenizerTest, BosComesOnlyIfTheModelWantsItAndTheCallerAsks) {
  TokenizerSpec spec = Spec();
  EXPECT_THAT(Encode(spec, "a", {.add_bos = true}), ElementsAre('a'));
  spec.add_bos = true;
  EXPECT_THAT(Encode(spec, "a", {.add_bos = true}), ElementsAre(kBegin, 'a'));
  EXPECT_THAT(Encode(spec, "a"), ElementsAre('a'));
  EXPECT_THAT(Encode(spec, "", {.add_bos = true}), ElementsAre(kBegin));
}

TEST(TokenizerTest, ASpaceIsPutBeforeEachPieceOfTextThatHasNoneIfTheModelWantsIt) {
  TokenizerSpec spec = Spec();
  spec.add_space_prefix = true;
  EXPECT_THAT(Encode(spec, "ab<|im_end|>ab", {.parse_special = true}),
              ElementsAre(kSpaceAb, kEnd, kSpaceAb));
  EXPECT_THAT(Encode(spec, " ab"), ElementsAre(kSpaceAb));
}

TEST(TokenizerTest, LlamaTakesAWordThatIsATokenWholeWhateverTheMergesSay) {
  // The merges make "abc" into a + bc; the token ab + c can be reached by no merge of that word.
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"b", "c"}, {"a", "b"}, {"ab", "c"}};
  EXPECT_THAT(Encode(SmallSpec(merges, {}, "qwen2"), "abc"), ElementsAre('a', 256));
  EXPECT_THAT(Encode(SmallSpec(merges, {}, "llama-bpe"), "abc"), ElementsAre(258));
}

TEST(TokenizerTest, Qwen2ReadsTextInNfcAndTheOthersAsItIs) {
  EXPECT_THAT(Encode(Spec("qwen2"), "e\u0301"), ElementsAre(0xC3, 0xA9));
  EXPECT_THAT(Encode(Spec("gpt2"), "e\u0301"), ElementsAre('e', 0xCC, 0x81));
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedWithTheOffset) {
  const auto tokenizer = Tokenizer::Create(Spec()).value();
  const auto ids = tokenizer->Encode("good \xC3(");
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ids.status().message(), "the text is not UTF-8: byte 5 is 0xc3");
}

TEST(TokenizerTest, TextPastTheLimitIsRefusedWithTheNumbers) {
  const auto tokenizer = Tokenizer::Create(Spec()).value();
  const auto ids = tokenizer->Encode(std::string(kMaxEncodeBytes + 1, 'a'));
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ids.status().message(), "the text has 67108865 bytes; the limit is 67108864");
}

TEST(TokenizerTest, AMebibyteOfOneCharacterEncodesAndDecodes) {
  for (const char* pre : {"gpt2", "smollm", "llama-bpe", "qwen2"}) {
    const auto tokenizer = Tokenizer::Create(Spec(pre)).value();
    for (const char c : {'a', ' ', '\n', '0', '<'}) {
      const std::string text(1 << 20, c);
      EXPECT_EQ(tokenizer->DecodeBytes(tokenizer->Encode(text, {.parse_special = true}).value()),
                text);
    }
  }
}

TEST(TokenizerTest, TheEndsOfGenerationAreEosEotAndTheWellKnownOnes) {
  TokenizerSpec spec = Spec();
  spec.eot_id = kBegin;
  const auto tokenizer = Tokenizer::Create(spec).value();
  EXPECT_THAT(tokenizer->end_of_generation_ids(), ElementsAre(kEnd, kBegin, kTool));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(kEnd));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration('a'));
}

TEST(TokenizerTest, SpecialTokensAreFoundByTheirText) {
  const auto tokenizer = Tokenizer::Create(Spec()).value();
  EXPECT_EQ(tokenizer->FindSpecial("<s>"), kBegin);
  EXPECT_EQ(tokenizer->FindSpecial("ab"), std::nullopt);
  EXPECT_TRUE(tokenizer->IsControl(kBegin));
  EXPECT_FALSE(tokenizer->IsControl(kTool));
}

TEST(TokenizerTest, ASpecThatContradictsItselfIsRefusedByName) {
  const auto message = [](const TokenizerSpec& spec) {
    return std::string(Tokenizer::Create(spec).status().message());
  };
  TokenizerSpec spec = Spec();
  spec.eos_id = 999;
  EXPECT_EQ(message(spec), "the EOS token is 999; the vocabulary has ids 0 to 260");
  spec = Spec();
  spec.bos_id.reset();
  spec.add_bos = true;
  EXPECT_EQ(message(spec), "the model asks for a BOS token but names none");
  spec = Spec();
  spec.model = "llama";
  EXPECT_THAT(message(spec), HasSubstr("\"llama\" is not supported; supported is gpt2"));
  spec = Spec("unheard-of");
  EXPECT_THAT(message(spec), HasSubstr("\"unheard-of\" is not supported"));
  spec = Spec();
  spec.merges.push_back("a zz");
  EXPECT_THAT(message(spec), HasSubstr("merge 2 is \"a zz\""));
}

TEST(TokenizerTest, ManyThreadsEncodeAtOnceToTheSameIds) {
  const auto tokenizer = Tokenizer::Create(Spec("llama-bpe")).value();
  std::string text;
  for (int i = 0; i < 500; ++i) text += "ab abab <|im_end|> é 1234\n ";
  const std::vector<TokenId> expected = tokenizer->Encode(text, {.parse_special = true}).value();
  std::vector<std::vector<TokenId>> results(8);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          result = tokenizer->Encode(text, {.parse_special = true}).value();
        }
      });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace octavo
