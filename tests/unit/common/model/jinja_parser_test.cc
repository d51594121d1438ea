#include "common/model/jinja_parser.h"

#include <string>

#include "common/model/jinja_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo::jinja {
namespace {

using ::testing::HasSubstr;

std::string ParseError(const std::string& source) {
  absl::Status status = ParseTemplate(source).status();
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// The expression of a template that is one output.
const Expression& Only(const Template& parsed) { return *parsed.body.at(0)->expression; }

TEST(JinjaParserTest, BindsProductsTighterThanSums) {
  auto parsed = ParseTemplate("{{ 1 + 2 * 3 }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Only(**parsed).binary, BinaryOperator::kAdd);
  EXPECT_EQ(Only(**parsed).operands[1]->binary, BinaryOperator::kMultiply);
}

TEST(JinjaParserTest, AppliesFiltersToASignedNumberAsAWhole) {
  auto parsed = ParseTemplate("{{ -1 | abs }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Only(**parsed).kind, ExpressionKind::kFilter);
  EXPECT_EQ(Only(**parsed).operands[0]->kind, ExpressionKind::kNegate);
}

TEST(JinjaParserTest, ReadsAChainOfComparisonsAsOne) {
  auto parsed = ParseTemplate("{{ 1 < 2 <= 3 not in x }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(Only(**parsed).comparisons.size(), 3u);
}

TEST(JinjaParserTest, KnowsWhichSpecialNamesAMacroUses) {
  auto parsed = ParseTemplate(
      "{% macro a() %}{{ varargs }}{% endmacro %}{% macro b() %}{{ caller() }}{% endmacro %}");
  ASSERT_TRUE(parsed.ok());
  const Signature& a = (*parsed)->body[0]->signature;
  const Signature& b = (*parsed)->body[1]->signature;
  EXPECT_TRUE(a.uses_varargs);
  EXPECT_FALSE(a.uses_caller);
  EXPECT_TRUE(b.uses_caller);
  EXPECT_FALSE(b.uses_kwargs);
}

TEST(JinjaParserTest, RefusesALargeSource) {
  EXPECT_THAT(ParseError(std::string(kJinjaMaxSourceBytes + 1, 'x')), HasSubstr("bytes"));
  EXPECT_EQ(ParseError(std::string(kJinjaMaxSourceBytes, 'x')), "");
}

TEST(JinjaParserTest, RefusesNestingBeyondTheLimitAndAllowsItBelow) {
  auto nested = [](int depth) {
    return "{{ " + std::string(depth, '[') + std::string(depth, ']') + " }}";
  };
  EXPECT_EQ(ParseError(nested(kJinjaMaxTreeDepth - 10)), "");
  EXPECT_THAT(ParseError(nested(kJinjaMaxTreeDepth + 10)), HasSubstr("nested deeper than 150"));
}

TEST(JinjaParserTest, RefusesLongChainsThatMakeADeepTree) {
  std::string sum = "{{ 1";
  for (int i = 0; i < 1000; ++i) sum += " + 1";
  EXPECT_THAT(ParseError(sum + " }}"), HasSubstr("nested deeper"));
}

TEST(JinjaParserTest, PutsOffUnknownFiltersThatAConditionMayNotReach) {
  EXPECT_EQ(ParseError("{% if a %}{{ x | nope }}{% endif %}"), "");
  EXPECT_EQ(ParseError("{{ (x | nope) if a else 1 }}"), "");
  EXPECT_EQ(ParseError("{{ 1 if a else (x is nope) }}"), "");
  EXPECT_THAT(ParseError("\n{{ x | nope }}"), HasSubstr("line 2: the filter 'nope'"));
  EXPECT_THAT(ParseError("{{ x is nope }}"), HasSubstr("line 1: the test 'nope'"));
}

struct BadSource {
  const char* source;
  const char* message;
};

class JinjaParserErrorTest : public testing::TestWithParam<BadSource> {};

TEST_P(JinjaParserErrorTest, NamesTheFaultAndItsLine) {
  EXPECT_THAT(ParseError(GetParam().source), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, JinjaParserErrorTest,
    testing::Values(BadSource{"\n{% include 'x' %}", "line 2: the tag 'include' is not supported"},
                    BadSource{"{% nope %}", "line 1: unknown tag 'nope'"},
                    BadSource{"{% if a %}\n{% endfor %}",
                              "line 2: unknown tag 'endfor'; expected elif"},
                    BadSource{"{% if a %}\n", "endif is missing"},
                    BadSource{"{% break %}", "'break' outside a loop"},
                    BadSource{"{{ }}", "expected an expression, found '}}'"},
                    BadSource{"{{ a b }}", "expected '}}', found 'b'"},
                    BadSource{"{{ f(a=1, a=2) }}", "'a' is repeated"},
                    BadSource{"{{ f(a=1, 2) }}", "out of order"},
                    BadSource{"{{ a[1, 2] }}", "several values"},
                    BadSource{"{% set none = 1 %}", "cannot assign to 'none'"},
                    BadSource{"{% for loop in a %}{% endfor %}", "'loop'"},
                    BadSource{"{% macro m(a=1, b) %}{% endmacro %}", "'b' has no default"},
                    BadSource{"{% macro m(a, a) %}{% endmacro %}", "'a' is repeated"},
                    BadSource{"{% call a %}{% endcall %}", "needs a call"},
                    BadSource{"{{ a is b is c }}", "cannot be chained"}));

}  // namespace
}  // namespace octavo::jinja
