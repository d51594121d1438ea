#include "tools/octavo/trace_file.h"

#include <gtest/gtest.h>

namespace octavo::cli {
namespace {

TEST(TraceFileTest, ReadsCsvAndJsonLines) {
  const std::vector<RequestLength> expected = {{74, 918}, {290, 905}};
  EXPECT_EQ(ParseTrace("input_tokens,output_tokens\n74,918\n290,905\n").value(), expected);
  EXPECT_EQ(ParseTrace("arrival_s,output_tokens,input_tokens\r\n0.5,918,74\r\n1,905,290").value(),
            expected);
  EXPECT_EQ(ParseTrace("{\"timestamp\": 0, \"input_length\": 74, \"output_length\": 918}\n"
                       "{\"output_length\": 905, \"input_length\": 290, \"hash_ids\": [1]}\n")
                .value(),
            expected);
}

TEST(TraceFileTest, SaysWhichLineIsWrong) {
  const auto message = [](const char* text) {
    return std::string(ParseTrace(text).status().message());
  };
  EXPECT_EQ(message("input_tokens,output_tokens\n1,2\n3,x\n"),
            "line 3: column 2 is not a whole number");
  EXPECT_EQ(message("input_tokens,output_tokens\n1\n"), "line 2: column 2 is not a whole number");
  EXPECT_EQ(message("{\"input_length\": 1, \"output_length\": -1}"),
            "line 1: \"output_length\" is not a whole number");
  EXPECT_EQ(message("{\"input_length\": 1"), "line 1: it is not a JSON object");
  EXPECT_EQ(message("a,output_tokens\n1,2\n").substr(0, 47),
            "line 1: the header has no column input_tokens; ");
  EXPECT_EQ(message(""), "it has no requests");
  EXPECT_EQ(ReadTraceFile("/nonexistent/trace").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace octavo::cli
