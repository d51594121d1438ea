#pragma once

// `octavo top --pool`: the KV pool as a picture. Data in, text out; no terminal, no server.
//
// A character of the map stands for one block, or, where the pool is too large for the screen, for
// some neighbouring ones, and shows what most of them are:
//   .  free       +  cached       *  held by several tables
//   A to z  held by that request alone       #  by one that has no letter
// So it can be read without colour, which only repeats it.
//
// Thread-compatible.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/v1/admin_service.pb.h"

namespace octavo::cli {

struct Screen {
  int columns = 80;
  int rows = 24;
  bool color = false;    // ECMA-48 colours
  bool unicode = false;  // block elements in UTF-8; without them graphs are digits
};

// How many cells of a pool fit on the screen: what to ask GetPoolMap for.
uint32_t CellsOn(const Screen& screen);

struct PoolLook {
  v1::GetSchedulerStateResponse state;
  v1::GetPoolMapResponse map;
};

// What is remembered from look to look: who has which letter, and what is drawn over time.
class PoolHistory {
 public:
  static constexpr size_t kMaxLooks = 512;  // older ones are forgotten

  // A request keeps its letter as long as it holds blocks; who comes takes the first that is free.
  void Add(const PoolLook& look);

  char LetterOf(const std::string& request_id) const;  // '#': none
  // One value a look, the last one now. Of the prompt tokens looked up since the look before, the
  // share that was found; absent where there were none.
  const std::vector<std::optional<double>>& hit_ratios() const { return hit_ratios_; }
  // Of the token slots of held blocks, the share without a token; absent where none is held.
  const std::vector<std::optional<double>>& waste() const { return waste_; }

 private:
  std::map<std::string, char> letters_;
  std::vector<std::optional<double>> hit_ratios_, waste_;
  uint64_t query_tokens_ = 0, hit_tokens_ = 0;  // at the last look
};

// At most screen.rows - 1 lines of at most screen.columns characters, each ended by a line feed; at
// least 10 lines and 32 columns, however small the screen. REQUIRES: `history` has seen `look`.
std::string DrawPool(const PoolLook& look, const PoolHistory& history, const Screen& screen);

}  // namespace octavo::cli
