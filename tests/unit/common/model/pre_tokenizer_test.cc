#include "common/model/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pcre2.h>

#include <string>
#include <vector>

namespace octavo {
namespace {

using ::testing::HasSubstr;

// The words of `text` parted by |.
std::string Words(absl::string_view name, absl::string_view text) {
  const auto pre_tokenizer = PreTokenizer::Create(FindPreTokenizerRules(name).value()).value();
  PreTokenizer::Scratch scratch = pre_tokenizer->MakeScratch();
  std::string out;
  const absl::Status status = pre_tokenizer->Split(text, scratch, [&](absl::string_view word) {
    if (!out.empty()) out += '|';
    out.append(word.data(), word.size());
  });
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(PreTokenizerTest, Gpt2KeepsNumbersWholeAndLeadsWordsWithASpace) {
  EXPECT_EQ(Words("gpt2", "It's 1234 of 5,678!"), "It|'s| 1234| of| 5|,|678|!");
  EXPECT_EQ(Words("gpt2", "a  b\n\n c\t"), "a| | b|\n\n| c|\t");
  EXPECT_EQ(Words("gpt2", "IT'S"), "IT|'|S");
}

TEST(PreTokenizerTest, SmolLmCutsOutEachDigitBeforeAnythingElse) {
  EXPECT_EQ(Words("smollm", "in 2024 x7y"), "in| |2|0|2|4| x|7|y");
  EXPECT_EQ(Words("smollm", "a   5"), "a|   |5") << "a digit ends a run of spaces as the end does";
  EXPECT_EQ(Words("smollm", "a   b"), "a|  | b");
  EXPECT_EQ(Words("smollm", "½Ⅷ٣"), "½|Ⅷ|٣");
}

TEST(PreTokenizerTest, Llama3GroupsThreeDigitsAndLetsASymbolLeadAWord) {
  EXPECT_EQ(Words("llama-bpe", "12345 (word)"), "123|45| (|word|)");
  EXPECT_EQ(Words("llama-bpe", "IT'S don'T"), "IT|'S| don|'T");
  EXPECT_EQ(Words("llama-bpe", "x;\r\n\r\n  y \n"), "x|;\r\n\r\n| | y| \n");
  EXPECT_EQ(Words("llama-bpe", "\ta\t\tb"), "\ta|\t|\tb");
}

TEST(PreTokenizerTest, Qwen2CutsDigitsOneByOne) {
  EXPECT_EQ(Words("qwen2", "12345 x"), "1|2|3|4|5| x");
}

TEST(PreTokenizerTest, SpacesAreUnicodesWhiteSpaceAndNotTheMongolianVowelSeparator) {
  EXPECT_EQ(Words("gpt2", "a\u00A0\u2003\u3000\u0085b"), "a|\u00A0\u2003\u3000|\u0085|b");
  EXPECT_EQ(Words("gpt2", " \u180E\u200B!"), " \u180E\u200B!");
}

TEST(PreTokenizerTest, EveryCharacterBelongsToAWord) {
  for (const char* name : {"gpt2", "smollm", "llama-bpe", "qwen2"}) {
    std::string text;
    for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
    text += "é\u0301中ب\U0001F468\u200D\U0001F469\U0010FFFF\uFFFF";
    const auto pre_tokenizer = PreTokenizer::Create(FindPreTokenizerRules(name).value()).value();
    PreTokenizer::Scratch scratch = pre_tokenizer->MakeScratch();
    std::string joined;
    ASSERT_TRUE(
        pre_tokenizer
            ->Split(text, scratch,
                    [&](absl::string_view word) { joined.append(word.data(), word.size()); })
            .ok());
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(PreTokenizerTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto rules = FindPreTokenizerRules("tekken");
  EXPECT_EQ(rules.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(rules.status().message()),
              HasSubstr("\"tekken\" is not supported; supported are gpt2, gpt-2, smollm"));
}

// Runs the pattern with a callout before each of its items: a count of what the matcher tries,
// whatever the machine.
uint64_t CountTries(const std::string& pattern, const std::string& text) {
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_AUTO_CALLOUT,
                                   &error, &error_offset, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, 1u << 30);
  uint64_t tries = 0;
  pcre2_set_callout(
      context,
      [](pcre2_callout_block*, void* count) {
        ++*static_cast<uint64_t*>(count);
        return 0;
      },
      &tries);
  pcre2_match_data* match = pcre2_match_data_create_from_pattern(code, nullptr);
  for (size_t at = 0; at < text.size();) {
    const int matched = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    at, PCRE2_NO_UTF_CHECK, match, context);
    EXPECT_GT(matched, 0) << "at " << at;
    if (matched <= 0) break;
    at = pcre2_get_ovector_pointer(match)[1];
  }
  pcre2_match_data_free(match);
  pcre2_match_context_free(context);
  pcre2_code_free(code);
  return tries;
}

TEST(PreTokenizerTest, TriesGrowWithTheTextAndNotWithItsSquare) {
  for (const char* name : {"gpt2", "smollm", "llama-bpe", "qwen2"}) {
    const std::string pattern =
        PreTokenizer::Create(FindPreTokenizerRules(name).value()).value()->pattern();
    for (const char* unit : {"a", " ", "\n", "\t ", "!", "5", "'", " a", "é", "\n ", "'s", "!\n"}) {
      const auto tries = [&](size_t length) {
        std::string text;
        while (text.size() < length) text += unit;
        return CountTries(pattern, text + "x");
      };
      EXPECT_LE(tries(16 << 10), 17 * tries(1 << 10)) << name << " on \"" << unit << "\"";
    }
  }
}

TEST(PreTokenizerTest, AMebibyteOfOneCharacterIsCutWithoutRunningOutOfStack) {
  for (const char* name : {"gpt2", "smollm", "llama-bpe", "qwen2"}) {
    for (const char c : {'a', ' ', '\n', '!', '7', '\''}) {
      EXPECT_GE(Words(name, std::string(1 << 20, c)).size(), size_t{1} << 20) << name << " " << c;
    }
  }
}

}  // namespace
}  // namespace octavo
