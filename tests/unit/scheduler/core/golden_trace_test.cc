// Every trace under tests/golden/traces says what the engine does, command by command.
// OCTAVO_REWRITE_TRACES=1 writes what it really does into them; the diff is then reviewed.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduler/core/trace_runner.h"

namespace octavo {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> TraceNames() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(OCTAVO_SOURCE_DIR "/tests/golden/traces")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenTraceTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTraceTest, TheEngineDoesWhatTheTraceSays) {
  const std::filesystem::path path =
      std::filesystem::path(OCTAVO_SOURCE_DIR "/tests/golden/traces") / (GetParam() + ".txt");
  const std::string text = ReadFile(path);
  ASSERT_FALSE(text.empty());
  const std::string replayed = ReplayTrace(text);
  EXPECT_THAT(replayed, testing::Not(testing::HasSubstr("VIOLATED")));
  const char* rewrite = std::getenv("OCTAVO_REWRITE_TRACES");
  if (rewrite != nullptr && std::string(rewrite) == "1") {
    std::ofstream(path) << replayed;
    return;
  }
  EXPECT_EQ(replayed, text);
}

INSTANTIATE_TEST_SUITE_P(Traces, GoldenTraceTest, testing::ValuesIn(TraceNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace octavo
