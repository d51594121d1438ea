#include "scheduler/core/result_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace octavo {
namespace {

absl::Status Wrong(const StepInFlight& flight, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the result of step ", flight.step.value(), " ", what));
}

template <typename Tokens>
absl::Status CheckTokens(const StepInFlight& flight, const Tokens& tokens, uint32_t vocab_size) {
  for (const auto& token : tokens) {
    if (token.token_id >= 0 && static_cast<uint32_t>(token.token_id) < vocab_size) continue;
    return Wrong(flight,
                 absl::StrCat("holds token ", token.token_id, "; the vocabulary has ", vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace

bool HasFailed(const StepResult& result, SequenceId sequence) {
  return std::find(result.failed.begin(), result.failed.end(), sequence) != result.failed.end();
}

absl::Status CheckResult(const StepInFlight& flight, const StepResult& result,
                         uint32_t vocab_size) {
  if (!result.digests.empty() && result.digests.front() != flight.digest) {
    return Wrong(flight,
                 absl::StrCat("ran on block tables with digest ",
                              absl::Hex(result.digests.front(), absl::kZeroPad16),
                              "; the plan's is ", absl::Hex(flight.digest, absl::kZeroPad16)));
  }
  OCTAVO_RETURN_IF_ERROR(CheckTokens(flight, result.sampled, vocab_size));
  OCTAVO_RETURN_IF_ERROR(CheckTokens(flight, result.scored, vocab_size));
  OCTAVO_RETURN_IF_ERROR(CheckTokens(flight, result.top, vocab_size));
  size_t sampled = 0;
  size_t scored = 0;
  uint64_t top_count = 0;
  for (const RowInFlight& row : flight.rows) {
    const bool failed = HasFailed(result, row.sequence_id);
    const uint32_t end = row.first_position + row.token_count;
    const uint32_t tops = std::min(row.top_count, vocab_size);
    const auto check_top = [&](const TokenOutcome& outcome) {
      top_count += outcome.top_count;
      return outcome.top_count == tops
                 ? absl::OkStatus()
                 : Wrong(flight,
                         absl::StrCat("has ", outcome.top_count, " alternatives where ", tops,
                                      " were asked for, at position ", outcome.position,
                                      " of sequence ", row.sequence_id.value()));
    };
    uint32_t scores = 0;
    for (; scored < result.scored.size() && scores < row.token_count &&
           result.scored[scored].sequence_id == row.sequence_id;
         ++scored) {
      const TokenOutcome& outcome = result.scored[scored];
      if (outcome.position != row.first_position + ++scores) {
        return Wrong(flight, absl::StrCat("scores position ", outcome.position, " of sequence ",
                                          row.sequence_id.value(), " where ",
                                          row.first_position + scores, " was expected"));
      }
      OCTAVO_RETURN_IF_ERROR(check_top(outcome));
    }
    if (scores < row.score_count && !failed) {
      return Wrong(flight, absl::StrCat("scores ", scores, " of ", row.score_count,
                                        " tokens of sequence ", row.sequence_id.value()));
    }
    if (!row.samples || failed) continue;
    if (sampled == result.sampled.size() ||
        result.sampled[sampled].sequence_id != row.sequence_id ||
        result.sampled[sampled].position != end) {
      return Wrong(flight, absl::StrCat("has no token for position ", end, " of sequence ",
                                        row.sequence_id.value()));
    }
    OCTAVO_RETURN_IF_ERROR(check_top(result.sampled[sampled++]));
  }
  if (sampled != result.sampled.size() || scored != result.scored.size()) {
    return Wrong(flight, absl::StrCat("has ", result.sampled.size() - sampled, " sampled and ",
                                      result.scored.size() - scored,
                                      " scored tokens that nobody asked for"));
  }
  if (top_count != result.top.size()) {
    return Wrong(flight, absl::StrCat("has ", result.top.size(),
                                      " alternatives where its tokens say ", top_count));
  }
  return absl::OkStatus();
}

}  // namespace octavo
