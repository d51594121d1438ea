#include "common/model/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace octavo {
namespace {

TEST(ByteAlphabetTest, EveryByteHasItsOwnCharacterAndReadsBack) {
  std::set<char32_t> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    characters.insert(ByteToAlphabet(static_cast<uint8_t>(byte)));
    EXPECT_EQ(SpelledBytes(SpellBytes(bytes)), bytes) << byte;
  }
  EXPECT_EQ(characters.size(), 256u);
}

TEST(ByteAlphabetTest, SpacesAndControlsHaveTheCharactersThatVocabulariesShow) {
  EXPECT_EQ(SpellBytes(" the\n\t"), "ĠtheĊĉ");
  EXPECT_EQ(ByteToAlphabet(0x00), U'Ā');
  EXPECT_EQ(ByteToAlphabet(0x7F), U'ġ');
  EXPECT_EQ(ByteToAlphabet(0xA0), U'ł');
  EXPECT_EQ(ByteToAlphabet(0xAD), U'Ń');
  EXPECT_EQ(ByteToAlphabet(0xE9), U'é');
}

TEST(ByteAlphabetTest, TextWithOtherCharactersSpellsNothing) {
  EXPECT_EQ(SpelledBytes("a b"), std::nullopt) << "a space is not of the alphabet";
  EXPECT_EQ(SpelledBytes("中"), std::nullopt);
  EXPECT_EQ(SpelledBytes("ń"), std::nullopt) << "U+0144 is the first character past the alphabet";
  EXPECT_EQ(SpelledBytes("a\xFF"), std::nullopt);
}

}  // namespace
}  // namespace octavo
