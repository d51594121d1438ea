#include "common/flags.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(std::string, test_name, "default", "A string flag.");
ABSL_FLAG(bool, test_switch, false, "A switch.");
ABSL_FLAG(int32_t, test_count, 5, "A count.");

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "binary");
  return ParseFlags(static_cast<int>(arguments.size()), arguments.data());
}

TEST(FlagsTest, SetsFlagsInEverySpelling) {
  absl::FlagSaver saver;
  ASSERT_TRUE(Parse({"--test_name=a", "-test_switch", "--test_count", "250"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "a");
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 250);
  ASSERT_TRUE(Parse({"--notest_switch", "--test_name", "--b"}).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_switch));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "--b");
}

TEST(FlagsTest, KeepsPositionalArgumentsAndStopsAtTheDoubleDash) {
  absl::FlagSaver saver;
  const auto line = Parse({"one", "--test_name=x", "two", "--", "--test_name=y", "--help"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(line->positional, ElementsAre("one", "two", "--test_name=y", "--help"));
  EXPECT_FALSE(line->help);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "x");
}

TEST(FlagsTest, RefusesWhatItCannotUseAndNamesIt) {
  absl::FlagSaver saver;
  EXPECT_THAT(std::string(Parse({"--no_such_flag=1"}).status().message()),
              HasSubstr("unknown flag --no_such_flag"));
  EXPECT_THAT(std::string(Parse({"--notest_name"}).status().message()),
              HasSubstr("unknown flag --notest_name"));
  EXPECT_THAT(std::string(Parse({"--test_count=many"}).status().message()),
              HasSubstr("--test_count does not take \"many\""));
  EXPECT_THAT(std::string(Parse({"--test_name"}).status().message()),
              HasSubstr("--test_name needs a value"));
}

TEST(FlagsTest, KnowsHelpAndVersion) {
  EXPECT_TRUE(Parse({"--help"})->help);
  EXPECT_TRUE(Parse({"--version"})->version);
}

TEST(FlagsTest, HelpListsTheFlagsOfOneFolderWithTheirDefaults) {
  const std::string help = FlagsHelp("About this.", {"unit/common/flags_test"});
  EXPECT_THAT(help, HasSubstr("About this."));
  EXPECT_THAT(help, HasSubstr("--test_count\n      A count.\n      Default: 5"));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--flagfile")));
}

}  // namespace
}  // namespace octavo
