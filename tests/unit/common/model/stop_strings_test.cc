#include "common/model/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>

#include "common/model/utf8.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::string text;
  std::optional<size_t> matched;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome RunPieces(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStringMatcher matcher = StopStringMatcher::Create(stops).value();
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopStringMatcher::Result result = matcher.Append(piece);
    outcome.text += result.text;
    outcome.matched = result.matched;
    if (result.matched) return outcome;
  }
  outcome.text += matcher.Finish();
  return outcome;
}

// The definition: the smallest end at which a stop string is complete, the longest of those.
Outcome RunByDefinition(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool ends_here = std::string_view(text).substr(0, end).ends_with(stops[i]);
      if (ends_here && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStringsTest, TextIsHeldBackOnlyWhileItMayBeginAStopString) {
  StopStringMatcher matcher = StopStringMatcher::Create({"###"}).value();
  EXPECT_EQ(matcher.Append("one #").text, "one ");
  EXPECT_EQ(matcher.held_bytes(), 1u);
  EXPECT_EQ(matcher.Append("#").text, "");
  EXPECT_EQ(matcher.Append("2").text, "##2");
  EXPECT_EQ(matcher.held_bytes(), 0u);
}

TEST(StopStringsTest, AStopStringAcrossPiecesIsFoundAndNeverShown) {
  EXPECT_EQ(RunPieces({"\nUser:"}, {"Hi.", "\n", "Us", "er", ": more"}), (Outcome{"Hi.", 0}));
}

TEST(StopStringsTest, TheOneCompleteFirstWins) {
  EXPECT_EQ(RunPieces({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", 1}));
}

TEST(StopStringsTest, OfSeveralCompleteAtOnceTheLongestWinsSoThatNoneOfItIsShown) {
  EXPECT_EQ(RunPieces({"d", "bcd", "cd"}, {"ab", "c", "d"}), (Outcome{"a", 1}));
}

TEST(StopStringsTest, AFailedBeginningMayHoldAnotherBeginning) {
  EXPECT_EQ(RunPieces({"aab"}, {"a", "a", "a", "b"}), (Outcome{"a", 0}));
  EXPECT_EQ(RunPieces({"abcx", "bcd"}, {"abc", "d"}), (Outcome{"a", 1}));
}

TEST(StopStringsTest, FinishShowsWhatWasHeldBack) {
  EXPECT_EQ(RunPieces({"END"}, {"the E", "N"}), (Outcome{"the EN", std::nullopt}));
}

TEST(StopStringsTest, WithoutStopStringsNothingIsHeldBack) {
  StopStringMatcher matcher = StopStringMatcher::Create({}).value();
  EXPECT_EQ(matcher.Append("any text").text, "any text");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopStringsTest, AStopStringThatEndsInsideACharactersBytesIsNoMatchAndNoPieceSplitsOne) {
  // é is C3 A9 and è is C3 A8: the first byte is shared.
  StopStringMatcher matcher = StopStringMatcher::Create({"xé"}).value();
  EXPECT_EQ(matcher.Append("axè").text, "axè");
  EXPECT_EQ(matcher.Append("xé").matched, 0u);
}

TEST(StopStringsTest, RandomTextsCutAnywhereGiveWhatTheDefinitionGives) {
  std::mt19937 random(99);
  const std::vector<std::string> letters = {"a", "b", "é", "è", "🌍"};
  const auto draw_text = [&](size_t most) {
    std::string text;
    for (size_t n = random() % most; n > 0; --n) text += letters[random() % letters.size()];
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 4; n > 0; --n)
      stops.push_back(letters[random() % 2] + draw_text(5));
    const std::string text = draw_text(40);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.size(), at + 1 + random() % 6);
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      pieces.push_back(text.substr(at, end - at));
      at = end;
    }
    StopStringMatcher matcher = StopStringMatcher::Create(stops).value();
    for (const std::string& piece : pieces) {
      const StopStringMatcher::Result result = matcher.Append(piece);
      ASSERT_EQ(FindInvalidUtf8(result.text), std::nullopt);
      if (result.matched) break;
    }
    const Outcome expected = RunByDefinition(stops, text);
    ASSERT_EQ(RunPieces(stops, pieces), expected) << "round " << round;
    matches += expected.matched.has_value();
  }
  EXPECT_GT(matches, 1000);
  EXPECT_LT(matches, 4900);
}

TEST(StopStringsTest, StopStringsOutOfBoundsAreRefusedByNumber) {
  const auto message = [](const std::vector<std::string>& stops) {
    return std::string(StopStringMatcher::Create(stops).status().message());
  };
  EXPECT_EQ(message({"a", ""}), "stop string 1 has 0 bytes; it must have 1 to 1024");
  EXPECT_EQ(message({std::string(1025, 'x')}),
            "stop string 0 has 1025 bytes; it must have 1 to 1024");
  EXPECT_EQ(message({"a\xFF"}), "stop string 0 is not UTF-8 at byte 1");
  EXPECT_THAT(message(std::vector<std::string>(65, "a")), HasSubstr("the limit is 64"));
}

}  // namespace
}  // namespace octavo
