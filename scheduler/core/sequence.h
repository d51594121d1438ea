#pragma once

// A request and its sequences, as the engine keeps them. A request is what a client sent; a
// sequence is one token stream of it, with its own block table: one, or several parallel samples.
// Of those, the first is the *stem*: it alone waits and computes the prompt. The others, its
// *siblings*, are born with its first token and share its blocks (engine_fork.cc); then each is a
// sequence like any other.
//
// Positions. tokens[p] is the token at absolute position p: the prompt, then the output as far as
// results confirm it. A step that samples while it is in flight adds one *pending* token whose
// value only the worker knows: `reach` counts it, `tokens` does not.
//   0 ≤ written ≤ planned < reach == tokens.size() + pending_samples          (of a running
//   sequence between steps)
// KV of [0, written) is confirmed; steps in flight write [written, planned). Prefill and decode are
// not two modes: a row computes [planned, end) and samples iff end == reach. A prefix hit counts as
// written even where a step in flight is to fill its blocks: if that fails, the sequence waits
// anew.
//
// Lifecycle: SequenceState and CanMove below; nothing else changes a state.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/sampling_params.h"
#include "common/step_result.h"
#include "scheduler/core/beam_search.h"
#include "scheduler/core/block_table.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/stop_condition.h"

namespace octavo {

// A place in SequenceStore. Reused when its sequence has ended, so whatever outlives a step keeps
// the SequenceId beside it.
using SequenceSlot = uint32_t;

// The order of waiting and of running: priority (lower is sooner), then arrival.
struct QueueKey {
  int32_t priority = 0;
  uint64_t arrival = 0;

  friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

// What a waiting sequence lets others compute for it (PrefixProviders).
struct PrefixWait {
  SequenceId on;
  uint32_t token_count = 0;  // its leading tokens that `on` computes
  uint32_t step_count = 0;   // steps planned meanwhile
};

// A beam search among its beams' sequences (engine_beams.cc).
struct BeamGroup {
  BeamSearch search;
  std::vector<std::vector<TokenLogprob>> alternatives;  // [beam_count], as they come in
  uint32_t delivered_count = 0;                         // of them
  uint32_t returned_count = 1;                          // hypotheses in the answer
  uint64_t first_arrival = 0;                           // of `width` places in the order of arrival
};

struct Request {
  RequestId id;
  std::string client_request_id;
  std::string prefix_scope;  // PrefixScope of the cache salt
  bool prompt_logprobs = false;
  bool no_cache = false;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time submitted;
  std::optional<absl::Time> admitted;
  std::optional<absl::Time> first_token;
  uint32_t cached_token_count = 0;  // at the first admission
  uint32_t preemption_count = 0;

  int32_t priority = 0;
  uint32_t prompt_token_count = 0;
  uint32_t max_tokens = 0;    // of each sequence
  uint64_t seed = 0;          // of the first sequence
  uint32_t sample_count = 1;  // of a beam search its width
  uint32_t unborn_count = 0;  // siblings: all but the stem, or none
  bool paused = false;
  uint32_t next_score = 1;  // first prompt position whose log-probability was not delivered yet
  uint32_t completion_token_count = 0;  // of the sequences that have ended
  std::vector<SequenceSlot> sequences;  // the live ones, in the order of their indexes
  std::vector<SequenceRecord> ended;    // the others, as they ended
  std::unique_ptr<BeamGroup> beams;     // of a beam search; `sequences` are its beams, best first

  bool scores_due() const { return prompt_logprobs && next_score < prompt_token_count; }
};

struct Sequence {
  SequenceId id;
  SequenceState state = SequenceState::kWaiting;
  QueueKey key;
  Request* request = nullptr;  // borrowed; lives at least as long
  uint32_t index = 0;          // within the request
  uint64_t seed = 0;
  SamplingParams sampling;
  StopRule stop;
  // Of a beam search: its next token is chosen among all beams, when they have delivered their
  // candidates. Until then it sits out: paused, whatever the request is.
  bool is_beam = false;
  bool delivered = false;

  uint32_t prompt_token_count = 0;
  std::vector<TokenId> tokens;
  uint32_t written = 0;
  uint32_t planned = 0;
  uint32_t pending_samples = 0;  // 0 or 1 while a plan is made
  StepNumber last_step;          // the last step with a row of it

  BlockTable table;
  uint32_t target_blocks = 0;  // promised at admission: the blocks of all tokens known then
  bool on_worker = false;      // the worker knows it after the last plan
  uint32_t given_up = 0;       // `written` at the last preemption; 0 once resumed
  PrefixWait prefix_wait;      // while it waits

  // Copy-on-write. Forked, and no row since: all its blocks may be in other tables too, and if the
  // last one is not full, whoever writes it next looks. So plain decodes never do.
  bool shares_tail = false;
  uint32_t inherited = 0;   // positions before it were planned by the sequence it was forked from
  StepNumber copy_step;     // the last step that copied its tail: until that is done, positions
  uint32_t copy_floor = 0;  // from here on are not written in its own blocks, whoever wrote them

  uint32_t output_count() const {
    return static_cast<uint32_t>(tokens.size()) - prompt_token_count;
  }
  uint32_t reach() const { return static_cast<uint32_t>(tokens.size()) + pending_samples; }
  // Something is left to compute that is not planned yet. (The last token it may have is never
  // computed: nothing follows it.)
  bool wants_step() const { return reach() - prompt_token_count < stop.max_tokens; }
  uint32_t promised_blocks() const {
    return target_blocks > table.size() ? target_blocks - table.size() : 0;
  }
  bool scores_due() const { return request->scores_due(); }
  bool is_running() const {
    return state == SequenceState::kRunning || state == SequenceState::kPausedRunning;
  }
  bool is_paused() const {
    return state == SequenceState::kPausedWaiting || state == SequenceState::kPausedRunning;
  }
};

// admission waiting→running · preemption running→waiting, paused running→paused waiting · pause,
// resume · every state ends once
constexpr bool CanMove(SequenceState from, SequenceState to) {
  switch (from) {
    case SequenceState::kWaiting:
      return to == SequenceState::kRunning || to == SequenceState::kPausedWaiting ||
             to == SequenceState::kEnded;
    case SequenceState::kRunning:
      return to == SequenceState::kWaiting || to == SequenceState::kPausedRunning ||
             to == SequenceState::kEnded;
    case SequenceState::kPausedWaiting:
      return to == SequenceState::kWaiting || to == SequenceState::kEnded;
    case SequenceState::kPausedRunning:
      return to == SequenceState::kRunning || to == SequenceState::kPausedWaiting ||
             to == SequenceState::kEnded;
    case SequenceState::kEnded:
      return false;
  }
  return false;
}

// CHECKs CanMove.
void Move(Sequence& sequence, SequenceState to);

// Sequences in one array. References are valid until the next Add.
class SequenceStore {
 public:
  SequenceSlot Add(Sequence sequence);
  void Remove(SequenceSlot slot);
  uint32_t size() const { return size_; }

  Sequence& operator[](SequenceSlot slot) { return slots_[slot]; }
  const Sequence& operator[](SequenceSlot slot) const { return slots_[slot]; }
  // The sequence of that id if it still lives there.
  const Sequence* Find(SequenceSlot slot, SequenceId id) const {
    if (slot >= slots_.size()) return nullptr;
    const Sequence& sequence = slots_[slot];
    return sequence.id == id && sequence.state != SequenceState::kEnded ? &sequence : nullptr;
  }
  Sequence* Find(SequenceSlot slot, SequenceId id) {
    return const_cast<Sequence*>(std::as_const(*this).Find(slot, id));
  }

 private:
  std::vector<Sequence> slots_;
  std::vector<SequenceSlot> free_;
  uint32_t size_ = 0;
};

}  // namespace octavo
