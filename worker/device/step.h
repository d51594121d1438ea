#pragma once

// One step as the device sees it: flat inputs that the executor lays out, ops recorded by the
// backend that made it, flat outputs. No sequence ids and no block tables by name are left here; a
// sequence is a row range and a slot number.
//
// Thread rule: owned by whoever prepares it until Submit, by the backend until Await returns, then
// by the awaiting thread.

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/sampling_params.h"
#include "common/step_result.h"
#include "kernels/copy_blocks.h"

namespace octavo {

// The last input of a row is the token its sequence sampled last: input `token` comes from slot
// `slot`.
struct FedToken {
  uint32_t token = 0;
  uint32_t slot = 0;

  friend bool operator==(const FedToken&, const FedToken&) = default;
};

// Consecutive input tokens of one sequence, at absolute positions first_position, first_position +
// 1, …
struct SequenceRows {
  uint32_t first_token = 0;  // index into the step's tokens
  uint32_t token_count = 0;
  uint32_t first_position = 0;
  uint32_t slot = 0;

  friend bool operator==(const SequenceRows&, const SequenceRows&) = default;
};

// What a sequence slot holds from here on.
struct SlotStart {
  uint32_t slot = 0;
  uint64_t seed = 0;
  uint32_t prompt_token_count = 0;
  SamplingParams sampling;
  std::vector<TokenId> history;  // prompt and output so far; empty unless sampling.needs_history()

  friend bool operator==(const SlotStart&, const SlotStart&) = default;
};

// Block tables of one layer group, sequence after sequence in the order of StepInputs::sequences.
struct GroupInputs {
  std::vector<uint32_t> block_tables;  // block ids
  std::vector<int64_t> table_offsets;  // [sequence_count], where each table begins in block_tables
  std::vector<kernels::SlotCopy> copies;  // applied before anything is written

  friend bool operator==(const GroupInputs&, const GroupInputs&) = default;
};

// The logits of one input token: computed once, whoever wants them.
struct LogitsSource {
  uint32_t token = 0;      // the input token
  uint32_t first_row = 0;  // logits_rows [first_row, first_row + row_count) choose from them
  uint32_t row_count = 0;

  friend bool operator==(const LogitsSource&, const LogitsSource&) = default;
};

// One choice or score that somebody wants.
struct LogitsRow {
  uint32_t token = 0;  // the input token whose logits these are
  uint32_t slot = 0;
  uint32_t position = 0;  // absolute position of the token chosen or scored
  bool samples = false;   // else scores `target`
  TokenId target = 0;
  bool wants_logprob = false;
  uint32_t top_count = 0;    // alternatives to report, 0 to kMaxStepTopLogprobs
  bool stop_allowed = true;  // false while min_tokens is not reached

  friend bool operator==(const LogitsRow&, const LogitsRow&) = default;
};

struct StepInputs {
  std::vector<TokenId> token_ids;        // [token_count]; those named in fed_tokens are not read
  std::vector<int32_t> positions;        // [token_count], absolute
  std::vector<int32_t> token_sequences;  // [token_count], index into sequences
  std::vector<SequenceRows>
      sequences;  // tokens of a sequence are consecutive, at consecutive positions
  std::vector<FedToken> fed_tokens;
  std::vector<SlotStart> slot_starts;
  std::vector<GroupInputs> groups;           // [layer_group_count]
  std::vector<LogitsRow> logits_rows;        // those of one token are consecutive
  std::vector<LogitsSource> logits_sources;  // their tokens, in the same order

  uint32_t token_count() const { return static_cast<uint32_t>(token_ids.size()); }
  // Fills logits_sources from logits_rows.
  void GroupLogitsRows();
  // Empties every list and keeps its memory; `groups` keeps its size.
  void Clear();
  friend bool operator==(const StepInputs&, const StepInputs&) = default;
};

// What became of one logits row.
struct LogitsOutcome {
  bool finite = true;  // false: the logits held a NaN or infinity, or an earlier row of this slot
                       // did; nothing else is set
  TokenId token_id = 0;
  float logprob = 0;  // of the raw logits
  std::vector<TokenLogprob> top;

  friend bool operator==(const LogitsOutcome&, const LogitsOutcome&) = default;
};

struct StepOutputs {
  std::vector<LogitsOutcome> outcomes;  // [logits_rows.size()]
  uint64_t forward_ns = 0;  // from the first op's start to the last one's end, sampling left out
  uint64_t sample_ns = 0;
};

// Backends derive from it to hang on their recording.
class Step {
 public:
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  StepInputs inputs;
  StepOutputs outputs;

 protected:
  Step() = default;
};

}  // namespace octavo
