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

TEST(TraceFileTest, ReadsWhichPromptsBeginAlike) {
  const std::vector<RequestPrefix> expected = {{513, {0, 7}}, {512, {0}}};
  EXPECT_EQ(ParsePrefixTrace("{\"input_length\": 513, \"output_length\": 9, \"hash_ids\": [0, 7]}\n"
                             "{\"input_length\": 512, \"hash_ids\": [0]}\r\n")
                .value(),
            expected);
}

TEST(TraceFileTest, SaysWhichPrefixIsWrong) {
  const auto message = [](const char* text) {
    return std::string(ParsePrefixTrace(text).status().message());
  };
  EXPECT_EQ(message("input_tokens,output_tokens\n1,2\n"), "line 1: it is not a JSON object");
  EXPECT_EQ(message("{\"hash_ids\": [0]}"), "line 1: \"input_length\" is not a whole number");
  EXPECT_EQ(message("{\"input_length\": 0, \"hash_ids\": []}"), "line 1: \"input_length\" is 0");
  EXPECT_EQ(message("{\"input_length\": 5}"), "line 1: it has no \"hash_ids\"");
  EXPECT_EQ(message("{\"input_length\": 5, \"hash_ids\": [1]}\n"
                    "{\"input_length\": 512, \"hash_ids\": [1, 2]}"),
            "line 2: \"hash_ids\" has 2 ids; 512 tokens take 1");
  EXPECT_EQ(message("{\"input_length\": 4294967295, \"hash_ids\": [1]}"),
            "line 1: \"hash_ids\" has 1 ids; 4294967295 tokens take 8388608");
  EXPECT_EQ(message("{\"input_length\": 5, \"hash_ids\": [2147483648]}"),
            "line 1: a hash id is not a whole number up to 2147483647");
  EXPECT_EQ(message(""), "it has no requests");
}

}  // namespace
}  // namespace octavo::cli
