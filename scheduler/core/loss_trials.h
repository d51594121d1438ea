#pragma once

// Finds the request that kills its worker, if there is one, and lets nobody else pay for it.
//
// Idea. When a replica is lost while steps are in flight, it may have been chance, or one of the
// requests in those steps may do it again. So they are *suspects*, and the next replica tries them
// in groups: only one group runs, until each of its suspects has computed again what it was
// computing then; meanwhile all others are held back. A group that lives is cleared. One that dies
// too is tried in halves, and the other groups are let go, so one poisonous request among n is
// alone after at most 1 + log2(n) losses. Who was alone in a step whose replica was lost, twice
// with the same rows, is guilty: the same work fails at the same place, which chance does not. (The
// method is group testing by halving: R. Dorfman, "The Detection of Defective Members of Large
// Populations", 1943.)
//
// A loss while nothing was in flight counts for nobody.
//
// Thread-compatible; a value without clock or allocation beyond its lists.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"

namespace octavo {

// A row of a step in flight when the replica was lost.
struct LostRow {
  StepNumber step;
  RequestId request_id;
  uint32_t sequence_index = 0;
  uint32_t first_position = 0;
  uint32_t token_count = 0;

  friend bool operator==(const LostRow&, const LostRow&) = default;
};

class LossTrials {
 public:
  struct Suspect {
    RequestId request_id;
    uint32_t end = 0;  // it is cleared when every sequence of it has written so many positions
  };

  // The replica was lost with these rows unanswered, in the order of their steps. Returns the first
  // row of whoever is guilty; that one is no suspect any more.
  std::optional<LostRow> OnLoss(std::span<const LostRow> rows);

  // There are suspects: one step in flight at a time, and only of whom Admits.
  bool active() const { return !groups_.empty(); }
  // Whether the request may have a row now.
  bool Admits(RequestId id) const;
  // Of the group on trial, those that are not cleared yet. REQUIRES: active().
  const std::vector<Suspect>& pending() const { return groups_.front().pending; }
  // It computed what it had to, ended, or cannot run for now. The last one ends the group's trial.
  // REQUIRES: active().
  void Clear(RequestId id);
  // The group on trial cannot run: lets it go. REQUIRES: active().
  void ClearGroup() { groups_.pop_front(); }

 private:
  struct Group {
    std::vector<RequestId> members;
    std::vector<Suspect> pending;
  };

  void AddGroup(std::span<const Suspect> suspects);

  std::deque<Group> groups_;         // the first is on trial
  std::vector<LostRow> last_alone_;  // rows of the last lost step that had but one request
};

}  // namespace octavo
