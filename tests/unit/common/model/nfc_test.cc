#include "common/model/nfc.h"

#include <gtest/gtest.h>

#include <string>

namespace octavo {
namespace {

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(NfcTest, MarksComposeWithTheLetterBeforeThem) {
  EXPECT_EQ(ToNfc("e\u0301te\u0301"), "\u00E9t\u00E9");
  EXPECT_EQ(ToNfc("A\u030A = \u212B"), "\u00C5 = \u00C5");
  EXPECT_EQ(ToNfc("\u00E9\u0323"), "\u1EB9\u0301") << "a composed letter opens up for a lower mark";
}

TEST(NfcTest, MarksAreOrderedByClassAndEqualsKeepTheirOrder) {
  EXPECT_EQ(ToNfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(ToNfc("q\u0301\u0300"), "q\u0301\u0300");
  EXPECT_EQ(ToNfc("\u0327\u0301 \u0323"), "\u0327\u0301 \u0323") << "marks without a letter";
}

TEST(NfcTest, HangulSyllablesComposeFromTheirLetters) {
  EXPECT_EQ(ToNfc("\u1112\u1161\u11AB\u1100\u1173\u11AF"), "\uD55C\uAE00");
  EXPECT_EQ(ToNfc("\uD558\u11AB"), "\uD55C");
}

TEST(NfcTest, ExcludedCompositionsStayApart) {
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C");
  EXPECT_EQ(ToNfc("\u2126"), "\u03A9");
}

TEST(NfcTest, TextBelowTheFirstMarkIsLeftAsItIs) {
  const std::string text = "Caf\u00E9 \u00FC\u02FF\t\n";
  EXPECT_TRUE(IsTriviallyNfc(text));
  EXPECT_EQ(ToNfc(text), text);
  EXPECT_FALSE(IsTriviallyNfc("e\u0301"));
  EXPECT_EQ(ToNfc(""), "");
}

TEST(NfcTest, NormalisingTwiceChangesNothingMore) {
  const std::string text =
      "e\u0301\u0323\u0327 \u1112\u1161\u11AB \u0958 \u00E9\u0302x\u0F71\u0F72\u0F74";
  EXPECT_EQ(ToNfc(ToNfc(text)), ToNfc(text));
}

// Exchanging neighbours would take 6 * 10^10 exchanges here; the test's time limit is the check.
TEST(NfcTest, HalfAMillionMarksInTheWrongOrderAreSorted) {
  constexpr size_t kCount = 250'000;
  const std::string high = "\u0301", low = "\u0323";
  EXPECT_EQ(ToNfc("q" + Repeat(high, kCount) + Repeat(low, kCount)),
            "q" + Repeat(low, kCount) + Repeat(high, kCount));
}

}  // namespace
}  // namespace octavo
