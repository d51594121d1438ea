#include "scheduler/core/in_flight_sharing.h"

#include <algorithm>
#include <iterator>

#include "glog/logging.h"
#include "scheduler/core/replica.h"

namespace octavo {
namespace {

// Where in `indexed` the block stands. Blocks of a hit mostly stand there in a row, so the place
// after the last one found is tried first.
size_t PlaceOf(BlockId block, const std::vector<IndexedAhead>& indexed, size_t likely) {
  if (likely < indexed.size() && indexed[likely].block == block) return likely;
  const auto it = std::find_if(indexed.begin(), indexed.end(),
                               [&](const IndexedAhead& it) { return it.block == block; });
  return static_cast<size_t>(it - indexed.begin());
}

bool Contains(std::span<const SequenceId> ids, SequenceId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

uint32_t NoteReliances(std::span<const BlockId> blocks, const PrefixIndex& index,
                       const std::deque<StepInFlight>& in_flight, uint32_t row,
                       StepInFlight& flight) {
  uint32_t count = 0;
  for (const StepInFlight& before : in_flight) {
    if (before.indexed.empty()) continue;
    size_t place = 0;
    SequenceId last;
    for (const BlockId block : blocks) {
      if (index.ValidFrom(block) != before.step) continue;
      place = PlaceOf(block, before.indexed, place);
      CHECK_LT(place, before.indexed.size())
          << "nothing in step " << before.step << " fills block " << block;
      const SequenceId on = before.rows[before.indexed[place++].row].sequence_id;
      if (on != last) flight.reliances.push_back({row, on, before.step});
      last = on;
      ++count;
    }
  }
  return count;
}

Consequences VoidReliant(std::span<const SequenceId> failed, StepInFlight& flight,
                         std::deque<StepInFlight>& later) {
  Consequences result;
  std::vector<SequenceId> bad;
  for (const RowInFlight& row : flight.rows) {
    // One that is void already fails because of another one, which was dealt with.
    if (!row.is_void && Contains(failed, row.sequence_id)) bad.push_back(row.sequence_id);
  }
  std::vector<StepInFlight*> steps = {&flight};
  for (StepInFlight& step : later) steps.push_back(&step);
  for (StepInFlight* step : steps) {
    // Rows and reliances are in one order, and a row relies on rows before it only.
    auto reliance = step->reliances.begin();
    for (uint32_t i = 0; i < step->rows.size(); ++i) {
      RowInFlight& row = step->rows[i];
      bool is_void = step != &flight && Contains(bad, row.sequence_id);
      for (; reliance != step->reliances.end() && reliance->row == i; ++reliance) {
        if (reliance->step < flight.step || !Contains(bad, reliance->on)) continue;
        is_void = true;
        if (!Contains(result.again, row.sequence_id)) result.again.push_back(row.sequence_id);
      }
      if (!is_void || row.is_void) continue;
      row.is_void = true;
      result.voided.push_back(&row);
      if (!Contains(bad, row.sequence_id)) bad.push_back(row.sequence_id);
    }
  }
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    std::vector<IndexedAhead>& indexed = (*step)->indexed;
    const auto is_undone = [&](const IndexedAhead& it) {
      return Contains(bad, (*step)->rows[it.row].sequence_id);
    };
    std::copy_if(indexed.rbegin(), indexed.rend(), std::back_inserter(result.undone), is_undone);
    std::erase_if(indexed, is_undone);
  }
  return result;
}

PrefixProviders::Offer PrefixProviders::For(const Sequence& sequence, uint32_t block_size) const {
  Offer offer;
  const auto usable = static_cast<uint32_t>(sequence.tokens.size()) - 1;
  const auto whole = [&](uint32_t tokens) { return tokens - tokens % block_size; };
  for (const Row& row : rows_) {
    const std::vector<TokenId>& tokens = row.sequence->tokens;
    const auto most = std::min(usable, static_cast<uint32_t>(tokens.size()));
    if (whole(most) <= offer.later_count) continue;
    if (row.sequence->request->prefix_scope != sequence.request->prefix_scope) continue;
    const auto end = std::mismatch(tokens.begin(), tokens.begin() + most, sequence.tokens.begin());
    const auto common = static_cast<uint32_t>(end.first - tokens.begin());
    const uint32_t now_count = whole(std::min(common, row.end));
    if (now_count > offer.now_count) {
      offer.now_count = now_count;
      offer.slot = row.slot;
    }
    if (whole(common) > offer.later_count) {
      offer.later_count = whole(common);
      offer.awaited = row.sequence->id;
    }
  }
  return offer;
}

bool PrefixProviders::IsComputing(SequenceId id, uint32_t token_count) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
    return row.sequence->id == id && row.end < token_count;
  });
}

}  // namespace octavo
