#include "common/model/jinja_lexer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::jinja {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Tokens as "text", or a mark for the delimiters.
std::vector<std::string> Texts(absl::string_view source) {
  absl::StatusOr<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens.ok()) return {std::string(tokens.status().message())};
  std::vector<std::string> texts;
  for (const Token& token : *tokens) {
    switch (token.kind) {
      case TokenKind::kOutputBegin:
        texts.push_back("{{");
        break;
      case TokenKind::kOutputEnd:
        texts.push_back("}}");
        break;
      case TokenKind::kBlockBegin:
        texts.push_back("{%");
        break;
      case TokenKind::kBlockEnd:
        texts.push_back("%}");
        break;
      case TokenKind::kEnd:
        break;
      default:
        texts.push_back(token.text);
    }
  }
  return texts;
}

TEST(JinjaLexerTest, DropsTheNewlineBehindABlockAndTheBlanksBeforeIt) {
  EXPECT_THAT(Texts("a\n  {% x %}\nb"), ElementsAre("a\n", "{%", "x", "%}", "b"));
}

TEST(JinjaLexerTest, KeepsBlanksAndNewlinesAroundAnOutput) {
  EXPECT_THAT(Texts("a\n  {{ x }}\nb"), ElementsAre("a\n  ", "{{", "x", "}}", "\nb"));
}

TEST(JinjaLexerTest, StripsAllWhiteSpaceAtAMinus) {
  EXPECT_THAT(Texts("a \n\n {{- x -}} \n b"), ElementsAre("a", "{{", "x", "}}", "b"));
}

TEST(JinjaLexerTest, KeepsEverythingAtAPlus) {
  EXPECT_THAT(Texts("a\n  {%+ x +%}\nb"), ElementsAre("a\n  ", "{%", "x", "%}", "\nb"));
}

TEST(JinjaLexerTest, DropsOneNewlineAtTheVeryEnd) {
  EXPECT_THAT(Texts("a\n\n"), ElementsAre("a\n"));
  EXPECT_THAT(Texts("\n"), ElementsAre());
}

TEST(JinjaLexerTest, TakesEveryKindOfLineEndForANewline) {
  EXPECT_THAT(Texts("a\r\nb\rc"), ElementsAre("a\nb\nc"));
}

TEST(JinjaLexerTest, LeavesCommentsOut) {
  EXPECT_THAT(Texts("a{# {{ x }} #}\nb"), ElementsAre("a", "b"));
}

TEST(JinjaLexerTest, LeavesARawBlockAsItIs) {
  EXPECT_THAT(Texts("{% raw %}{{ x }}{% endraw %}\nb"), ElementsAre("{{ x }}", "b"));
}

TEST(JinjaLexerTest, DoesNotEndATagInsideBrackets) {
  EXPECT_THAT(Texts("{{ {'a': {}}}}"), ElementsAre("{{", "{", "a", ":", "{", "}", "}", "}}"));
}

TEST(JinjaLexerTest, UnescapesStrings) {
  EXPECT_THAT(Texts(R"({{ 'a\n\x41\u00e9\q' }})"), ElementsAre("{{", "a\nAé\\q", "}}"));
}

TEST(JinjaLexerTest, TellsFloatsFromIntegersAndIndices) {
  absl::StatusOr<std::vector<Token>> tokens = Tokenize("{{ 1.5 2 a.0.1 0x1F 1_000 }}");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ((*tokens)[1].number, 1.5);
  EXPECT_EQ((*tokens)[2].integer, 2);
  EXPECT_EQ((*tokens)[5].kind, TokenKind::kInteger);
  EXPECT_EQ((*tokens)[7].kind, TokenKind::kInteger);
  EXPECT_EQ((*tokens)[8].integer, 31);
  EXPECT_EQ((*tokens)[9].integer, 1000);
}

TEST(JinjaLexerTest, CountsLines) {
  absl::StatusOr<std::vector<Token>> tokens = Tokenize("a\n{# \n #}\n{{\n x }}");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ((*tokens)[2].text, "x");
  EXPECT_EQ((*tokens)[2].line, 5);
}

struct BadSource {
  const char* source;
  const char* message;
};

class JinjaLexerErrorTest : public testing::TestWithParam<BadSource> {};

TEST_P(JinjaLexerErrorTest, NamesTheFaultAndItsLine) {
  absl::Status status = Tokenize(GetParam().source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(All, JinjaLexerErrorTest,
                         testing::Values(BadSource{"\n{# x", "line 2: the comment"},
                                         BadSource{"{% raw %}x", "line 1: the raw"},
                                         BadSource{"a\n\n{{ x", "line 3: the tag"},
                                         BadSource{"{{ 'x }}", "the string"},
                                         BadSource{"{{ ) }}", "unexpected ')'"},
                                         BadSource{"{{ (] }}", "unexpected ']'"},
                                         BadSource{"{{ $ }}", "unexpected character '$'"},
                                         BadSource{"{{ é }}", "unexpected character 'é'"},
                                         BadSource{"{{ 9223372036854775808 }}", "64 bits"},
                                         BadSource{"{{ '\\x4' }}", "2 hexadecimal digits"},
                                         BadSource{"{{ '\\ud800' }}", "surrogate"},
                                         BadSource{"{{ '\\U00110000' }}", "no Unicode character"},
                                         BadSource{"{{ '\\N{DASH}' }}", "\\N{...}"}));

}  // namespace
}  // namespace octavo::jinja
