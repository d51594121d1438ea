#include "common/model/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "common/model/utf8.h"
#include "tests/unit/common/model/small_vocabulary.h"

namespace octavo {
namespace {

constexpr TokenId kControl = 256;

class DetokenizerTest : public testing::Test {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ =
      Tokenizer::Create(SmallSpec({}, {{"<|end|>", TokenType::kControl}})).value();

  // A piece per byte, parted by |.
  std::string Pieces(absl::string_view bytes) {
    Detokenizer detokenizer(tokenizer_.get());
    std::string out;
    for (const char byte : bytes) {
      out += detokenizer.Append(static_cast<unsigned char>(byte)) + "|";
    }
    return out + detokenizer.Finish();
  }
};

TEST_F(DetokenizerTest, ACharacterAppearsWithItsLastByte) {
  EXPECT_EQ(Pieces("aé"), "a||é|");
  EXPECT_EQ(Pieces("🌍!"), "|||🌍|!|");
}

TEST_F(DetokenizerTest, AnIncompleteEndIsOneReplacementCharacter) {
  EXPECT_EQ(Pieces("a\xF0\x9F\x8C"), "a||||\uFFFD");
  EXPECT_EQ(Pieces("\xE2\x82"), "||\uFFFD");
}

TEST_F(DetokenizerTest, BytesThatCannotGoOnAreReplacedAtOnceByMaximalSubparts) {
  EXPECT_EQ(Pieces("\xFF"), "\uFFFD|");
  EXPECT_EQ(Pieces("\xE2\x82z"), "||\uFFFDz|");
  EXPECT_EQ(Pieces("\xE2\xE2\x82\xAC"), "|\uFFFD||€|");
  EXPECT_EQ(Pieces("\xED\xA0\x80"), "|\uFFFD\uFFFD|\uFFFD|");
}

TEST_F(DetokenizerTest, ControlTokensAreHiddenUnlessAskedFor) {
  Detokenizer hiding(tokenizer_.get());
  EXPECT_EQ(hiding.Append(kControl), "");
  Detokenizer showing(tokenizer_.get(), {.show_control = true});
  EXPECT_EQ(showing.Append(kControl), "<|end|>");
}

TEST_F(DetokenizerTest, AHiddenTokenDoesNotBreakTheCharacterAroundIt) {
  Detokenizer detokenizer(tokenizer_.get());
  EXPECT_EQ(detokenizer.Append(0xC3), "");
  EXPECT_EQ(detokenizer.Append(kControl), "");
  EXPECT_EQ(detokenizer.Append(0xA9), "é");
}

TEST_F(DetokenizerTest, FinishMakesItNew) {
  Detokenizer detokenizer(tokenizer_.get());
  detokenizer.Append(0xC3);
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.Finish(), "");
  EXPECT_EQ(detokenizer.Append('x'), "x");
}

TEST_F(DetokenizerTest, HoweverRandomBytesAreCutThePiecesAreUtf8AndTheirSumIsTheSame) {
  std::mt19937 random(7);
  const std::string likely = "a\x80\xBF\xC3\xE2\x82\xAC\xED\xA0\xF0\x9F\x98\xF4\x90\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t n = random() % 24; n > 0; --n) bytes += likely[random() % likely.size()];
    Detokenizer whole(tokenizer_.get());
    std::string expected = whole.AppendBytes(bytes);
    expected += whole.Finish();
    Detokenizer cut(tokenizer_.get());
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = 1 + random() % 5;
      const std::string piece = cut.AppendBytes(absl::string_view(bytes).substr(at, length));
      ASSERT_EQ(FindInvalidUtf8(piece), std::nullopt);
      text += piece;
      at += length;
    }
    ASSERT_EQ(text + cut.Finish(), expected);
  }
}

}  // namespace
}  // namespace octavo
