#include "tools/octavo/answer_printer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace octavo::cli {
namespace {

using ::testing::HasSubstr;

class AnswerPrinterTest : public testing::Test {
 protected:
  static v1::GenerateRequest Request(uint32_t n, uint32_t beam_width) {
    v1::GenerateRequest request;
    request.set_n(n);
    request.set_beam_width(beam_width);
    return request;
  }
  static v1::GenerateResponse Chunk(uint32_t index, const std::string& text, uint32_t tokens,
                                    bool last = false) {
    v1::GenerateResponse chunk;
    chunk.set_index(index);
    chunk.set_text(text);
    chunk.add_token_ids(1);
    chunk.set_seed(70 + index);
    chunk.mutable_usage()->set_completion_tokens(tokens);
    if (last) chunk.set_finish_reason(v1::FINISH_REASON_MAX_TOKENS);
    return chunk;
  }
  static v1::GenerateResponse BeamProgress(uint32_t tokens) {
    v1::GenerateResponse chunk;
    chunk.mutable_usage()->set_completion_tokens(tokens);
    return chunk;
  }

  std::ostringstream out_, progress_;
};

TEST_F(AnswerPrinterTest, ShowsOneCompletionAsItComes) {
  AnswerPrinter printer(Request(1, 1), &out_, &progress_);
  printer.Take(Chunk(0, "Hel", 1));
  EXPECT_EQ(out_.str(), "Hel");
  printer.Take(Chunk(0, "lo", 2, true));
  printer.Finish();
  EXPECT_EQ(out_.str(), "Hello\n");
  EXPECT_EQ(progress_.str(), "");
}

TEST_F(AnswerPrinterTest, ShowsEachOfSeveralSamplesWholeWhenItEnds) {
  AnswerPrinter printer(Request(2, 1), &out_, &progress_);
  printer.Take(Chunk(0, "a", 1));
  printer.Take(Chunk(1, "x", 2));
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(progress_.str(), HasSubstr("\r0 of 2 samples done, 2 tokens\x1b[K"));
  printer.Take(Chunk(1, "y", 3, true));
  EXPECT_EQ(out_.str(), "--- sample 1, seed 71 ---\nxy\n");
  printer.Take(Chunk(0, "b", 4));
  EXPECT_THAT(progress_.str(), HasSubstr("\r1 of 2 samples done, 4 tokens\x1b[K"));
  printer.Take(Chunk(0, "c", 5, true));
  printer.Finish();
  EXPECT_EQ(out_.str(), "--- sample 1, seed 71 ---\nxy\n--- sample 0, seed 70 ---\nabc\n");
}

TEST_F(AnswerPrinterTest, ShowsWhatASampleHasWhenTheStreamBreaks) {
  AnswerPrinter printer(Request(2, 1), &out_, nullptr);
  printer.Take(Chunk(0, "half", 1));
  printer.Finish();
  EXPECT_EQ(out_.str(), "--- sample 0, seed 70, unfinished ---\nhalf\n");
}

TEST_F(AnswerPrinterTest, ShowsHypothesesWithTheirScoresAfterTheProgress) {
  AnswerPrinter printer(Request(2, 4), &out_, &progress_);
  printer.Take(BeamProgress(7));
  EXPECT_THAT(progress_.str(), HasSubstr("\rbeam search, 7 tokens long\x1b[K"));
  for (const uint32_t rank : {0, 1}) {
    v1::GenerateResponse chunk = Chunk(rank, rank == 0 ? "best" : "second", 8, true);
    chunk.set_score(-0.25f - static_cast<float>(rank));
    printer.Take(chunk);
  }
  printer.Finish();
  EXPECT_EQ(out_.str(),
            "--- hypothesis 0, score -0.2500 ---\nbest\n"
            "--- hypothesis 1, score -1.2500 ---\nsecond\n");
}

TEST_F(AnswerPrinterTest, ShowsTheOnlyHypothesisAsPlainText) {
  AnswerPrinter printer(Request(1, 4), &out_, &progress_);
  printer.Take(BeamProgress(7));
  EXPECT_THAT(progress_.str(), HasSubstr("beam search, 7 tokens long"));
  printer.Take(Chunk(0, "best", 7, true));
  printer.Finish();
  EXPECT_EQ(out_.str(), "best\n");
}

}  // namespace
}  // namespace octavo::cli
