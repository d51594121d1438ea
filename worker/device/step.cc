#include "worker/device/step.h"

namespace octavo {

void StepInputs::Clear() {
  token_ids.clear();
  positions.clear();
  token_sequences.clear();
  sequences.clear();
  fed_tokens.clear();
  slot_starts.clear();
  for (GroupInputs& group : groups) {
    group.block_tables.clear();
    group.table_offsets.clear();
    group.copies.clear();
  }
  logits_rows.clear();
  logits_sources.clear();
}

void StepInputs::GroupLogitsRows() {
  logits_sources.clear();
  for (uint32_t i = 0; i < logits_rows.size(); ++i) {
    const uint32_t token = logits_rows[i].token;
    if (logits_sources.empty() || logits_sources.back().token != token) {
      logits_sources.push_back({.token = token, .first_row = i});
    }
    ++logits_sources.back().row_count;
  }
}

}  // namespace octavo
