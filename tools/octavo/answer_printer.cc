#include "tools/octavo/answer_printer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::cli {

AnswerPrinter::AnswerPrinter(const v1::GenerateRequest& request, std::ostream* out,
                             std::ostream* progress)
    : out_(*out),
      progress_(progress),
      count_(request.has_n() ? request.n() : 1),
      beams_(request.beam_width() > 1) {}

void AnswerPrinter::Take(const v1::GenerateResponse& chunk) {
  const uint32_t index = chunk.index();
  const bool ends = chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  if (beams_ && chunk.token_ids().empty() && !ends) {
    ShowProgress(chunk.usage().completion_tokens());
    return;
  }
  if (count_ == 1) {
    ClearProgress();
    out_ << chunk.text() << std::flush;
    return;
  }
  texts_[index] += chunk.text();
  seeds_[index] = chunk.seed();
  if (!ends) {
    ShowProgress(chunk.usage().completion_tokens());
    return;
  }
  ++ended_count_;
  Print(index, beams_ ? absl::StrFormat("hypothesis %u, score %.4f", index, chunk.score())
                      : absl::StrCat("sample ", index, ", seed ", chunk.seed()));
}

void AnswerPrinter::Print(uint32_t index, const std::string& about) {
  ClearProgress();
  out_ << "--- " << about << " ---\n" << texts_.extract(index).mapped() << "\n" << std::flush;
}

void AnswerPrinter::Finish() {
  ClearProgress();
  if (count_ == 1) {
    out_ << "\n" << std::flush;
    return;
  }
  while (!texts_.empty()) {
    const uint32_t index = texts_.begin()->first;
    Print(index, absl::StrCat("sample ", index, ", seed ", seeds_[index], ", unfinished"));
  }
}

void AnswerPrinter::ShowProgress(uint32_t token_count) {
  if (progress_ == nullptr) return;
  *progress_ << "\r";
  if (beams_) {
    *progress_ << "beam search, " << token_count << " tokens long";
  } else {
    *progress_ << ended_count_ << " of " << count_ << " samples done, " << token_count << " tokens";
  }
  *progress_ << "\x1b[K" << std::flush;
  progress_shown_ = true;
}

void AnswerPrinter::ClearProgress() {
  if (std::exchange(progress_shown_, false)) *progress_ << "\r\x1b[K" << std::flush;
}

}  // namespace octavo::cli
