#include "common/model/vocabulary.h"

#include <gtest/gtest.h>

#include <utility>

namespace octavo {
namespace {

TEST(VocabularyTest, NormalTokensAreTheBytesTheySpellAndOthersAreAsWritten) {
  const Vocabulary vocabulary =
      Vocabulary::Create({"Ġthe", "<|é|>", "中", "Ã©"}, {TokenType::kNormal, TokenType::kControl,
                                                         TokenType::kNormal, TokenType::kNormal})
          .value();
  EXPECT_EQ(vocabulary.Bytes(0), " the");
  EXPECT_EQ(vocabulary.Bytes(1), "<|é|>");
  EXPECT_EQ(vocabulary.Bytes(2), "中") << "not of the byte alphabet";
  EXPECT_EQ(vocabulary.Bytes(3), "é");
}

TEST(VocabularyTest, OnlyNormalSpelledTokensAreFoundAsText) {
  const Vocabulary vocabulary =
      Vocabulary::Create({"a", "<|b|>", "中", "", "c", "d"},
                         {TokenType::kNormal, TokenType::kControl, TokenType::kNormal,
                          TokenType::kNormal, TokenType::kUserDefined, TokenType::kUnused})
          .value();
  EXPECT_EQ(vocabulary.FindText("a"), 0);
  for (const char* text : {"<|b|>", "中", "", "c", "d", "e"}) {
    EXPECT_EQ(vocabulary.FindText(text), std::nullopt) << text;
  }
}

TEST(VocabularyTest, AVocabularyThatMovesKeepsItsTexts) {
  Vocabulary first = Vocabulary::Create({"a", "b"}, {}).value();
  const Vocabulary second = std::move(first);
  EXPECT_EQ(second.FindText("b"), 1);
  EXPECT_EQ(second.Bytes(1), "b");
}

TEST(VocabularyTest, CountsAndTypesThatDoNotFitAreRefused) {
  EXPECT_EQ(Vocabulary::Create({}, {}).status().message(),
            "the vocabulary has 0 tokens; it must have 1 to 16777216");
  EXPECT_EQ(Vocabulary::Create({"a", "b"}, {TokenType::kNormal}).status().message(),
            "the vocabulary has 2 tokens but 1 token types");
  EXPECT_EQ(Vocabulary::Create({"a"}, {static_cast<TokenType>(7)}).status().message(),
            "token 0 has type 7; token types are 1 to 6");
}

TEST(VocabularyTest, ATokenThatIsNotUtf8IsRefusedSinceItWouldCutTextInsideACharacter) {
  EXPECT_EQ(Vocabulary::Create({"a", "b\xA9"}, {TokenType::kNormal, TokenType::kUserDefined})
                .status()
                .message(),
            "token 1 is not UTF-8 at byte 1");
}

TEST(VocabularyTest, IdsOutsideAreNotValid) {
  const Vocabulary vocabulary = Vocabulary::Create({"a", "b"}, {}).value();
  EXPECT_TRUE(vocabulary.IsValid(1));
  EXPECT_FALSE(vocabulary.IsValid(2));
  EXPECT_FALSE(vocabulary.IsValid(-1));
}

}  // namespace
}  // namespace octavo
