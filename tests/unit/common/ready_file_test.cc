#include "common/ready_file.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace octavo {
namespace {

TEST(ReadyFileTest, HoldsTheProcessIdAndTheFieldsAndReplacesWhatWasThere) {
  const std::string path = testing::TempDir() + "/ready.json";
  ASSERT_TRUE(WriteReadyFile(path, {{"listen", "old"}}).ok());
  ASSERT_TRUE(WriteReadyFile(path, {{"listen", "127.0.0.1:7000"}}).ok());
  std::ifstream file(path);
  const auto content = nlohmann::json::parse(file);
  EXPECT_EQ(content["pid"], getpid());
  EXPECT_EQ(content["listen"], "127.0.0.1:7000");
}

TEST(ReadyFileTest, SaysWhyItCannotBeWrittenAndIgnoresAnEmptyPath) {
  EXPECT_TRUE(WriteReadyFile("", {}).ok());
  const absl::Status status = WriteReadyFile("/nonexistent/ready.json", {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/nonexistent/ready.json"));
}

}  // namespace
}  // namespace octavo
