#include "common/model/special_tokens.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

class SpecialTokensTest : public testing::Test {
 protected:
  const Vocabulary vocabulary_ =
      Vocabulary::Create({"<a", "<a>", "<a><b", "x>y", "tool", "<a>z"},
                         {TokenType::kControl, TokenType::kControl, TokenType::kControl,
                          TokenType::kUserDefined, TokenType::kUserDefined, TokenType::kNormal})
          .value();
  const SpecialTokens specials_{vocabulary_};

  // The special tokens of `text` one after another, as "id@offset+length ".
  std::string Matches(absl::string_view text, bool with_control = true) {
    std::string out;
    size_t from = 0;
    while (const auto match = specials_.FindNext(text, from, with_control)) {
      out += std::to_string(match->id) + "@" + std::to_string(match->offset) + "+" +
             std::to_string(match->length) + " ";
      from = match->offset + match->length;
    }
    return out;
  }
};

TEST_F(SpecialTokensTest, TheLongestTokenAtAPlaceIsTaken) {
  EXPECT_EQ(Matches("<a"), "0@0+2 ");
  EXPECT_EQ(Matches("-<a>-"), "1@1+3 ");
  EXPECT_EQ(Matches("<a><b"), "2@0+5 ");
}

TEST_F(SpecialTokensTest, AFailedLongerTokenLeavesTheShorterOne) {
  EXPECT_EQ(Matches("<a><c"), "1@0+3 ");
  EXPECT_EQ(Matches("<a><a>"), "1@0+3 1@3+3 ");
}

TEST_F(SpecialTokensTest, TheLeftmostTokenWinsOverALaterOneThatOverlaps) {
  EXPECT_EQ(Matches("<ax>y"), "0@0+2 3@2+3 ");
  EXPECT_EQ(Matches("x>y<a"), "3@0+3 0@3+2 ");
}

TEST_F(SpecialTokensTest, ControlTokensAreTextUnlessAskedFor) {
  EXPECT_EQ(Matches("<a>tool<a><b", false), "4@3+4 ");
}

TEST_F(SpecialTokensTest, NormalTokensAreNoSpecials) { EXPECT_EQ(Matches("<a>z"), "1@0+3 "); }

TEST_F(SpecialTokensTest, FindTakesTheWholeTextOrNothing) {
  EXPECT_EQ(specials_.Find("<a>"), 1);
  EXPECT_EQ(specials_.Find("tool"), 4);
  EXPECT_EQ(specials_.Find("tools"), std::nullopt);
  EXPECT_EQ(specials_.Find(" tool"), std::nullopt);
  EXPECT_EQ(specials_.Find(""), std::nullopt);
}

}  // namespace
}  // namespace octavo
