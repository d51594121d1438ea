#include "tools/octavo/pool_view.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace octavo::cli {
namespace {

constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr int kLetterCount = sizeof(kLetters) - 1;
constexpr int kLabelColumns = 10;  // of a row of the map: the first block's id
constexpr int kRowUnit = 16;       // a row has a multiple of so many cells
constexpr int kOtherLines = 7;     // beside the map and the requests
constexpr int kNameColumns = 24;

int Columns(const Screen& screen) { return std::max(screen.columns, 32); }
int Lines(const Screen& screen) { return std::max(screen.rows - 1, kOtherLines + 3); }
int CellsInRow(const Screen& screen) {
  return std::max((Columns(screen) - kLabelColumns) / kRowUnit, 1) * kRowUnit;
}
// The rest is for the requests.
int MapRows(const Screen& screen) {
  const int lines = Lines(screen) - kOtherLines;
  return lines - std::clamp(lines / 4, 2, 10);
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string Fit(std::string line, const Screen& screen) {
  if (line.size() > static_cast<size_t>(Columns(screen))) line.resize(Columns(screen));
  return line;
}

// What most of the cell's blocks are; of equals the one that says more.
char Glyph(const v1::PoolCell& cell, const PoolLook& look, const PoolHistory& history) {
  const uint32_t own = cell.held_blocks() - cell.shared_blocks();
  const uint32_t most =
      std::max({own, cell.shared_blocks(), cell.cached_blocks(), cell.free_blocks()});
  if (cell.shared_blocks() == most) return '*';
  if (own == most) {
    return cell.has_request_index()
               ? history.LetterOf(
                     look.map.requests(static_cast<int>(cell.request_index())).request_id())
               : '#';
  }
  return cell.cached_blocks() == most ? '+' : '.';
}

const char* ColorOf(char glyph) {
  static constexpr const char* kOfLetters[] = {"31", "32", "33", "36", "91", "92", "93", "96"};
  switch (glyph) {
    case '.':
      return "2";
    case '+':
      return "34";
    case '*':
      return "35";
    case '#':
      return "37";
    default: {
      const char* place = std::find(kLetters, kLetters + kLetterCount, glyph);
      return kOfLetters[(place - kLetters) % std::size(kOfLetters)];
    }
  }
}

// Each run of one glyph in its colour.
std::string Paint(const std::string& glyphs, const Screen& screen) {
  if (!screen.color) return glyphs;
  std::string out;
  for (size_t i = 0; i < glyphs.size();) {
    const size_t end = std::min(glyphs.find_first_not_of(glyphs[i], i), glyphs.size());
    absl::StrAppend(&out, "\x1b[", ColorOf(glyphs[i]), "m", glyphs.substr(i, end - i), "\x1b[0m");
    i = end;
  }
  return out;
}

void DrawMap(const PoolLook& look, const PoolHistory& history, const Screen& screen,
             std::vector<std::string>& lines) {
  const int in_row = CellsInRow(screen);
  for (int first = 0; first < look.map.cells_size(); first += in_row) {
    std::string glyphs;
    for (int i = first; i < std::min(first + in_row, look.map.cells_size()); ++i)
      glyphs += Glyph(look.map.cells(i), look, history);
    lines.push_back(absl::StrFormat("%8d  %s", int64_t{first} * look.map.blocks_per_cell(),
                                    Paint(glyphs, screen)));
  }
}

// "▁▃█" or "018": values as tenths, or eighths, of `scale`, the last ones that fit in `columns`.
std::string Graph(const std::vector<std::optional<double>>& values, double scale, int columns,
                  bool unicode) {
  static constexpr const char* kDigits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::span<const char* const> levels =
      unicode ? std::span<const char* const>(kBars) : std::span<const char* const>(kDigits);
  std::string out;
  const size_t count = std::min(values.size(), static_cast<size_t>(std::max(columns, 0)));
  for (size_t i = values.size() - count; i < values.size(); ++i) {
    if (!values[i]) {
      out += ' ';
      continue;
    }
    const auto level = static_cast<size_t>(*values[i] / scale * static_cast<double>(levels.size()));
    out += levels[std::min(level, levels.size() - 1)];
  }
  return out;
}

// The first of these that no value exceeds.
double ScaleOf(const std::vector<std::optional<double>>& values) {
  double most = 0;
  for (const auto& value : values) most = std::max(most, value.value_or(0));
  for (const double scale : {0.05, 0.1, 0.2, 0.5}) {
    if (most <= scale) return scale;
  }
  return 1;
}

// "hit ratio  63.1 % [      ▁▃█] of 100 %".
std::string GraphLine(const char* name, double now, double scale,
                      const std::vector<std::optional<double>>& values, const Screen& screen) {
  const std::string start = absl::StrFormat("%-9s%6.1f %% [", name, 100 * now);
  const std::string end = absl::StrFormat("] of %3.0f %%", 100 * scale);
  const int columns = Columns(screen) - static_cast<int>(start.size() + end.size());
  const int count = std::min(columns, static_cast<int>(values.size()));
  return start + std::string(columns - count, ' ') + Graph(values, scale, columns, screen.unicode) +
         end;
}

std::string StateName(v1::RequestState state) {
  std::string name = v1::RequestState_Name(state).substr(sizeof("REQUEST_STATE_") - 1);
  for (char& letter : name) letter = static_cast<char>(absl::ascii_tolower(letter));
  return name;
}

// Who holds the pool, those with most blocks first.
void DrawRequests(const PoolLook& look, const PoolHistory& history, const Screen& screen,
                  std::vector<std::string>& lines) {
  // Of those that hold as much the earlier.
  std::vector<std::pair<int64_t, int>> requests;  // -blocks, place
  requests.reserve(look.map.requests_size());
  for (int i = 0; i < look.map.requests_size(); ++i)
    requests.emplace_back(-int64_t{look.map.requests(i).blocks()}, i);
  std::sort(requests.begin(), requests.end());
  size_t room = static_cast<size_t>(std::max(Lines(screen) - static_cast<int>(lines.size()), 1));
  if (requests.size() > room) --room;  // for the rest of them
  uint64_t blocks_left = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const v1::RequestSummary& it = look.map.requests(requests[i].second);
    if (i >= room) {
      blocks_left += it.blocks();
      continue;
    }
    const std::string rest =
        absl::StrFormat("  %-*s  %-7s %6u blocks  prompt %u, generated %u", kNameColumns,
                        it.request_id().substr(0, kNameColumns), StateName(it.state()), it.blocks(),
                        it.prompt_tokens(), it.completion_tokens());
    const char letter = history.LetterOf(it.request_id());
    lines.push_back(Paint(std::string(1, letter), screen) + Fit(" " + rest, screen).substr(1));
  }
  if (requests.size() > room) {
    lines.push_back(
        Fit(absl::StrFormat("and %u more with %u blocks", requests.size() - room, blocks_left),
            screen));
  }
}

}  // namespace

uint32_t CellsOn(const Screen& screen) {
  return static_cast<uint32_t>(MapRows(screen) * CellsInRow(screen));
}

void PoolHistory::Add(const PoolLook& look) {
  std::map<std::string, char> letters;
  std::set<char> taken;
  for (const v1::RequestSummary& request : look.map.requests()) {
    const auto known = letters_.find(request.request_id());
    if (known == letters_.end()) continue;
    letters.insert(*known);
    taken.insert(known->second);
  }
  for (const v1::RequestSummary& request : look.map.requests()) {
    if (letters.contains(request.request_id())) continue;
    const char* letter = std::find_if(kLetters, kLetters + kLetterCount,
                                      [&](char it) { return !taken.contains(it); });
    if (letter == kLetters + kLetterCount) break;
    letters[request.request_id()] = *letter;
    taken.insert(*letter);
  }
  letters_ = std::move(letters);

  const uint64_t queried = look.state.prefix_query_tokens() - query_tokens_;
  const uint64_t hit = look.state.prefix_hit_tokens() - hit_tokens_;
  const bool is_first = hit_ratios_.empty();
  query_tokens_ = look.state.prefix_query_tokens();
  hit_tokens_ = look.state.prefix_hit_tokens();
  // Before the first look was everything since the start; a restart counts anew.
  const bool known = !is_first && queried > 0 && hit <= queried;
  hit_ratios_.push_back(known ? std::optional(Share(hit, queried)) : std::nullopt);

  const v1::PoolState& pool = look.map.pool();
  const uint64_t held_slots = uint64_t{pool.held_blocks()} * pool.block_size();
  const uint64_t empty = pool.reserved_slots() + pool.internal_waste_slots();
  waste_.push_back(held_slots == 0 ? std::nullopt
                                   : std::optional(std::min(Share(empty, held_slots), 1.0)));
  for (auto* values : {&hit_ratios_, &waste_}) {
    if (values->size() > kMaxLooks) values->erase(values->begin());
  }
}

char PoolHistory::LetterOf(const std::string& request_id) const {
  const auto letter = letters_.find(request_id);
  return letter == letters_.end() ? '#' : letter->second;
}

std::string DrawPool(const PoolLook& look, const PoolHistory& history, const Screen& screen) {
  const v1::GetSchedulerStateResponse& state = look.state;
  const v1::PoolState& pool = look.map.pool();
  std::vector<std::string> lines;
  lines.push_back(Fit(absl::StrFormat("octavo %s  %s  up %.0f s%s", state.version(), state.model(),
                                      state.uptime_seconds(), state.draining() ? "  draining" : ""),
                      screen));
  if (look.map.cells().empty()) {
    const std::string why = state.replicas().empty() ? "" : state.replicas(0).detail();
    lines.push_back(Fit("no pool: the replica is not ready: " + why, screen));
  } else {
    const uint32_t each = look.map.blocks_per_cell();
    lines.push_back(
        Fit(absl::StrFormat("pool %u.%u  %u blocks of %u tokens, %s", pool.replica_id(),
                            pool.layer_group(), pool.block_count(), pool.block_size(),
                            each == 1 ? "a character each"
                                      : absl::StrFormat("%u a character: what most are", each)),
            screen));
  }
  DrawMap(look, history, screen, lines);
  lines.push_back(
      Fit(absl::StrFormat("          . free %u  + cached %u  * shared %u  A # held %u",
                          pool.free_blocks(), pool.cached_blocks(), pool.shared_blocks(),
                          pool.held_blocks() - pool.shared_blocks()),
          screen));
  lines.push_back(
      GraphLine("hit ratio", state.recent_prefix_hit_ratio(), 1, history.hit_ratios(), screen));
  lines.push_back(GraphLine("waste", history.waste().back().value_or(0), ScaleOf(history.waste()),
                            history.waste(), screen));
  lines.push_back(Fit(absl::StrFormat("          %u slots reserved, %u internal, %u external",
                                      pool.reserved_slots(), pool.internal_waste_slots(),
                                      pool.external_waste_slots()),
                      screen));
  lines.push_back(Fit(absl::StrFormat("requests  %u running, %u waiting, %u paused; %u preemptions",
                                      state.running_requests(), state.waiting_requests(),
                                      state.paused_requests(), state.preemptions()),
                      screen));
  DrawRequests(look, history, screen, lines);
  std::string out;
  for (const std::string& line : lines) absl::StrAppend(&out, line, "\n");
  return out;
}

}  // namespace octavo::cli
