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
}

}  // namespace octavo
