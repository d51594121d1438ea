// Engine: parallel samples. They share the KV of their prompt: the stem computes it, and in the
// step that samples the stem's first token its siblings are born, each with a row that computes
// nothing and samples from the same logits. A born sibling has the stem's blocks, its part-filled
// last one included, and is a sequence like any other from then on.
//
// Who writes into a block that another table names too copies it first (copy-on-write): the copy is
// part of the step that writes, and the last to write keeps the block. So nothing is copied that
// nobody writes. The block copied from stays held until that step is done.
//
// A sibling relies on the stem's row (in_flight_sharing.h): if that fails or is rolled back, it
// waits like any other, with the prompt, and computes for itself what is not found any more.

#include <algorithm>
#include <utility>

#include "common/sample_seed.h"
#include "glog/logging.h"
#include "scheduler/core/engine.h"

namespace octavo {

void Engine::BearSiblings(SequenceSlot stem_slot, StepPlan& plan, StepInFlight& flight) {
  Replica& replica = *replica_;
  Request& request = *sequences_[stem_slot].request;
  const uint32_t first_index = request.sample_count - request.unborn_count;
  replica.unborn_count -= request.unborn_count;
  request.unborn_count = 0;
  for (uint32_t index = first_index; index < request.sample_count; ++index) {
    Sequence sibling;
    {
      Sequence& stem = sequences_[stem_slot];  // adding the sibling may move it
      CHECK_EQ(stem.planned, stem.tokens.size());
      sibling.id = SequenceId(stem.id.value() + index);
      sibling.state = SequenceState::kRunning;
      sibling.key = {stem.key.priority, stem.key.arrival + index};
      sibling.request = &request;
      sibling.index = index;
      sibling.seed = SampleSeed(request.seed, index);
      sibling.sampling = stem.sampling;
      sibling.stop = stem.stop;
      sibling.prompt_token_count = stem.prompt_token_count;
      sibling.tokens = stem.tokens;
      sibling.written = stem.written;
      sibling.planned = stem.planned;
      sibling.inherited = stem.planned;
      sibling.pending_samples = 1;
      sibling.last_step = plan.step;
      const KvLayout& layout = replica.ledger.layout();
      replica.ledger.Fork(stem.table, layout.BlocksFor(stem.planned), sibling.table);
      sibling.shares_tail = stem.shares_tail = true;
    }
    SendState(sibling, plan);
    plan.rows.push_back({.sequence_id = sibling.id,
                         .first_position = sibling.planned,
                         .samples = true,
                         .shares_logits = true});
    const SequenceId id = sibling.id;
    const uint32_t planned = sibling.planned;
    const SequenceSlot slot = sequences_.Add(std::move(sibling));
    flight.reliances.push_back(
        {static_cast<uint32_t>(flight.rows.size()), sequences_[stem_slot].id, plan.step});
    flight.rows.push_back({.slot = slot,
                           .sequence_id = id,
                           .first_position = planned,
                           .samples = true,
                           .top_count = sequences_[slot].sampling.logprobs.value_or(0)});
    request.sequences.push_back(slot);
    AddToRunning(slot);
  }
}

void Engine::CopyTail(Sequence& sequence, StepPlan& plan) {
  Replica& replica = *replica_;
  const KvLayout& layout = replica.ledger.layout();
  const uint32_t index = layout.BlockIndex(sequence.planned);
  const uint32_t token_count = layout.Offset(sequence.planned);
  const BlockId source = replica.ledger.Unshare(index, plan.step, sequence.table);
  const BlockId copy = sequence.table[index];
  LayerGroupChange& change = plan.layer_groups[0];
  if (token_count > 0) {
    change.copies.push_back({.source = source, .destination = copy, .token_count = token_count});
  }
  if (index < sequence.table.sent_count()) {
    change.entry_changes.push_back({.sequence_id = sequence.id, .index = index, .block = copy});
    replica.digest += sequence.table.MarkChanged(sequence.id, index, source);
  }
  // Whatever is confirmed of the block, or will be by a step before this one, is the source's.
  sequence.copy_step = plan.step;
  sequence.copy_floor = index * layout.block_size;
  sequence.written = std::min(sequence.written, sequence.copy_floor);
}

}  // namespace octavo
