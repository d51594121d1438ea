#include "common/model/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace octavo {
namespace {

TEST(Utf8Test, EveryScalarValueReadsBackAsItWasWritten) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, text);
    const Utf8Step step = ReadUtf8(text);
    ASSERT_EQ(step.form, Utf8Form::kCharacter) << std::hex << uint32_t{c};
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
  }
}

TEST(Utf8Test, EveryProperPrefixOfACharacterIsIncomplete) {
  for (const char32_t c : {0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}) {
    std::string text;
    AppendUtf8(c, text);
    for (size_t length = 1; length < text.size(); ++length) {
      const Utf8Step step = ReadUtf8(absl::string_view(text).substr(0, length));
      EXPECT_EQ(step.form, Utf8Form::kIncomplete);
      EXPECT_EQ(step.length, length);
    }
  }
}

TEST(Utf8Test, OverlongFormsSurrogatesAndValuesPastTheEndAreInvalidAtTheirFirstByte) {
  for (const char* text : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF",
                           "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
                           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\x80", "\xBF"}) {
    const Utf8Step step = ReadUtf8(text);
    EXPECT_EQ(step.form, Utf8Form::kInvalid) << text;
    EXPECT_EQ(step.length, 1) << text;
  }
}

TEST(Utf8Test, AnInvalidSequenceIsAsLongAsItCouldHaveBeenACharacter) {
  EXPECT_EQ(ReadUtf8("\xE2\x82z").form, Utf8Form::kInvalid);
  EXPECT_EQ(ReadUtf8("\xE2\x82z").length, 2);
  EXPECT_EQ(ReadUtf8("\xF0\x9F\x98z").length, 3);
  EXPECT_EQ(ReadUtf8("\xF0\x9F\xF0").length, 2);
}

TEST(Utf8Test, TheFirstInvalidByteIsFoundWhereverItStands) {
  for (size_t offset = 0; offset < 40; ++offset) {
    std::string text(offset, 'a');
    text += "\xC3(";
    text += std::string(20, 'b');
    EXPECT_EQ(FindInvalidUtf8(text), offset);
  }
  EXPECT_EQ(FindInvalidUtf8("abc\xE2\x82"), 3u) << "a cut character at the end counts";
  EXPECT_EQ(FindInvalidUtf8("gr\xC3\xBC\xC3\x9F dich, \xF0\x9F\x8C\x8D"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8(""), std::nullopt);
}

}  // namespace
}  // namespace octavo
