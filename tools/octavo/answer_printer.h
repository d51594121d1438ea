#pragma once

// Shows a streamed answer to a person. One completion: its text as it comes. Several samples: each
// whole, under a line with its index and seed, when it ends, since streams mixed on one screen
// cannot be read. A beam search: its hypotheses, best first, with their scores. While nothing can
// be shown, a line on the terminal says how far it is.
//
// Thread-compatible.

#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "octavo/v1/generation_service.pb.h"

namespace octavo::cli {

class AnswerPrinter {
 public:
  // Text goes to `out`, the line of progress to `progress`; null: none, as where nobody watches.
  AnswerPrinter(const v1::GenerateRequest& request, std::ostream* out, std::ostream* progress);

  void Take(const v1::GenerateResponse& chunk);

  // The stream is over. What has not ended is shown as it is.
  void Finish();

 private:
  void Print(uint32_t index, const std::string& about);
  void ShowProgress(uint32_t token_count);
  void ClearProgress();

  std::ostream& out_;
  std::ostream* const progress_;
  const uint32_t count_;  // of the sequences in the answer
  const bool beams_;
  std::map<uint32_t, std::string> texts_;  // by index, of those that have not ended
  std::map<uint32_t, uint64_t> seeds_;
  uint32_t ended_count_ = 0;
  bool progress_shown_ = false;
};

}  // namespace octavo::cli
