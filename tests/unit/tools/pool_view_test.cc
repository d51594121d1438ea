#include "tools/octavo/pool_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace octavo::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kNone = -1;

class PoolViewTest : public testing::Test {
 protected:
  PoolViewTest() {
    look_.state.set_version("1.2.3");
    look_.state.set_model("small");
    look_.state.set_uptime_seconds(61);
    look_.map.set_blocks_per_cell(1);
  }
  // Cells of one block by their glyphs; a letter is a request of that name.
  void Pool(const std::string& glyphs, uint32_t block_size = 16) {
    v1::PoolState& pool = *look_.map.mutable_pool();
    pool.set_block_size(block_size);
    pool.set_block_count(static_cast<uint32_t>(glyphs.size()));
    uint32_t free = 0, cached = 0, held = 0, shared = 0;
    for (const char glyph : glyphs) {
      v1::PoolCell& cell = *look_.map.add_cells();
      cell.set_free_blocks(glyph == '.');
      cell.set_cached_blocks(glyph == '+');
      cell.set_held_blocks(glyph != '.' && glyph != '+');
      cell.set_shared_blocks(glyph == '*');
      free += cell.free_blocks(), cached += cell.cached_blocks();
      held += cell.held_blocks(), shared += cell.shared_blocks();
      if (std::isalpha(glyph)) cell.set_request_index(Request(std::string(1, glyph)));
    }
    pool.set_free_blocks(free);
    pool.set_cached_blocks(cached);
    pool.set_held_blocks(held);
    pool.set_shared_blocks(shared);
  }
  uint32_t Request(const std::string& id) {
    auto& requests = *look_.map.mutable_requests();
    auto it = std::find_if(requests.begin(), requests.end(),
                           [&](const auto& request) { return request.request_id() == id; });
    const auto index = static_cast<uint32_t>(it - requests.begin());
    if (it == requests.end()) {
      look_.map.add_requests()->set_request_id(id);
      it = requests.end() - 1;
    }
    it->set_state(v1::REQUEST_STATE_DECODE);
    it->set_blocks(it->blocks() + 1);
    return index;
  }
  std::string Draw(const Screen& screen = {}) {
    history_.Add(look_);
    return DrawPool(look_, history_, screen);
  }
  // The map alone.
  std::vector<std::string> Map(const Screen& screen = {}) {
    std::vector<std::string> rows;
    for (const std::string& line : Lines(Draw(screen))) {
      if (line.size() > 10 && line[0] == ' ' && std::isdigit(line[7])) rows.push_back(line);
    }
    return rows;
  }
  static std::vector<std::string> Lines(const std::string& text) {
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  PoolLook look_;
  PoolHistory history_;
};

TEST_F(PoolViewTest, EveryBlockIsACharacterAndEveryFigureHasItsPlace) {
  Pool("aaaab*+..b");
  look_.map.mutable_requests(0)->set_prompt_tokens(50);
  look_.map.mutable_requests(0)->set_completion_tokens(7);
  look_.map.mutable_pool()->set_reserved_slots(8);
  look_.map.mutable_pool()->set_internal_waste_slots(4);
  look_.state.set_running_requests(2);
  look_.state.set_waiting_requests(5);
  look_.state.set_recent_prefix_hit_ratio(0.631);
  look_.state.set_prefix_query_tokens(1000);
  Draw();
  look_.state.set_prefix_query_tokens(1200);
  look_.state.set_prefix_hit_tokens(100);
  EXPECT_EQ(Draw(),
            "octavo 1.2.3  small  up 61 s\n"
            "pool 0.0  10 blocks of 16 tokens, a character each\n"
            "       0  AAAAB*+..B\n"
            "          . free 2  + cached 1  * shared 1  A # held 6\n"
            "hit ratio  63.1 % [                                                  5] of 100 %\n"
            "waste      10.7 % [                                                 55] of  20 %\n"
            "          8 slots reserved, 4 internal, 0 external\n"
            "requests  2 running, 5 waiting, 0 paused; 0 preemptions\n"
            "A  a                         decode       4 blocks  prompt 50, generated 7\n"
            "B  b                         decode       2 blocks  prompt 0, generated 0\n");
}

TEST_F(PoolViewTest, NothingIsWiderOrLongerThanTheScreen) {
  Pool(std::string(2000, 'a'));
  for (int i = 0; i < 60; ++i) Request(std::string(128, 'r') + std::to_string(i));
  look_.state.set_model(std::string(200, 'm'));
  for (int i = 0; i < 600; ++i) history_.Add(look_);
  for (const Screen& screen :
       {Screen{80, 24}, Screen{40, 12}, Screen{32, 11}, Screen{200, 60}, Screen{81, 25}}) {
    PoolLook whole = look_;
    std::swap(whole, look_);
    const uint32_t each = (2000 + CellsOn(screen) - 1) / CellsOn(screen);
    look_.map.set_blocks_per_cell(each);
    look_.map.mutable_cells()->DeleteSubrange(static_cast<int>((2000 + each - 1) / each),
                                              2000 - static_cast<int>((2000 + each - 1) / each));
    const std::vector<std::string> lines = Lines(Draw(screen));
    EXPECT_EQ(lines.size(), static_cast<size_t>(screen.rows - 1));
    for (const std::string& line : lines)
      EXPECT_LE(line.size(), static_cast<size_t>(screen.columns)) << line;
    EXPECT_THAT(lines.back(), StartsWith("and "));
    std::swap(whole, look_);
  }
}

TEST_F(PoolViewTest, ACellShowsWhatMostOfItsBlocksAre) {
  const auto add = [&](uint32_t free, uint32_t cached, uint32_t own, uint32_t shared) {
    v1::PoolCell& cell = *look_.map.add_cells();
    cell.set_free_blocks(free);
    cell.set_cached_blocks(cached);
    cell.set_held_blocks(own + shared);
    cell.set_shared_blocks(shared);
    if (own > 0) cell.set_request_index(Request("r"));
  };
  look_.map.set_blocks_per_cell(100);
  add(60, 10, 20, 10);
  add(10, 60, 20, 10);
  add(20, 20, 50, 10);
  add(10, 20, 30, 40);
  add(25, 25, 25, 25);
  add(50, 50, 0, 0);
  EXPECT_THAT(Map(), ElementsAre("       0  .+A**+"));
  look_.map.mutable_cells(2)->clear_request_index();  // a step in flight alone still uses them
  EXPECT_THAT(Map(), ElementsAre("       0  .+#**+"));
}

TEST_F(PoolViewTest, RowsAreNamedByTheirFirstBlock) {
  Pool(std::string(65, '.'));
  look_.map.set_blocks_per_cell(157);
  EXPECT_THAT(Map(), ElementsAre("       0  " + std::string(64, '.'), "   10048  ."));
  EXPECT_THAT(Draw(), HasSubstr("157 a character: what most are"));
  EXPECT_EQ(Map({.columns = 200, .rows = 24}).size(), 1u);
}

TEST_F(PoolViewTest, ARequestKeepsItsLetterAndOneThatEndedLeavesIt) {
  Pool("xyz");
  EXPECT_THAT(Map(), ElementsAre("       0  ABC"));
  look_.map.Clear();
  look_.map.set_blocks_per_cell(1);
  Pool("zzw.y");
  EXPECT_THAT(Map(), ElementsAre("       0  CCA.B"));
}

TEST_F(PoolViewTest, WhoComesAfterTheLastLetterIsANumberSign) {
  for (int i = 0; i < 53; ++i) {
    v1::PoolCell& cell = *look_.map.add_cells();
    cell.set_held_blocks(1);
    cell.set_request_index(Request(std::to_string(i)));
  }
  EXPECT_THAT(Map(),
              ElementsAre("       0  ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#"));
}

TEST_F(PoolViewTest, ColourRepeatsWhatTheCharactersSay) {
  Pool("aab*+..");
  const std::string plain = Draw();
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  const std::string painted = DrawPool(look_, history_, {.color = true});
  EXPECT_THAT(painted, HasSubstr("\x1b[31mAA\x1b[0m\x1b[32mB\x1b[0m\x1b[35m*\x1b[0m\x1b[34m+\x1b[0m"
                                 "\x1b[2m..\x1b[0m"));
  std::string stripped;
  for (size_t i = 0; i < painted.size(); ++i) {
    if (painted[i] == '\x1b')
      i = painted.find('m', i);
    else
      stripped += painted[i];
  }
  EXPECT_EQ(stripped, plain);
}

TEST_F(PoolViewTest, HitsAndWasteAreDrawnOverTime) {
  Pool("aaaaa.....", 20);
  uint64_t queried = 0, hit = 0;
  for (const auto& [hits, waste] : std::vector<std::pair<double, uint64_t>>{
           {kNone, 0}, {0, 10}, {0.5, 20}, {kNone, 25}, {0.99, 40}, {1, 50}}) {
    if (hits != kNone) {
      queried += 100;
      hit += static_cast<uint64_t>(100 * hits);
    }
    look_.state.set_prefix_query_tokens(queried);
    look_.state.set_prefix_hit_tokens(hit);
    look_.map.mutable_pool()->set_internal_waste_slots(waste);
    history_.Add(look_);
  }
  EXPECT_THAT(DrawPool(look_, history_, {}), HasSubstr(" 05 99] of 100 %\n"));
  EXPECT_THAT(DrawPool(look_, history_, {}), HasSubstr(" 024589] of  50 %\n"));
  const std::string bars = DrawPool(look_, history_, {.unicode = true});
  EXPECT_THAT(bars, HasSubstr(" ▁▅ ██] of 100 %\n"));
  // The scheduler was started again: its counters began anew.
  look_.state.set_prefix_query_tokens(10);
  look_.state.set_prefix_hit_tokens(0);
  history_.Add(look_);
  EXPECT_EQ(history_.hit_ratios().back(), std::nullopt);
}

TEST_F(PoolViewTest, WithoutAReplicaItSaysSo) {
  look_.map.Clear();
  look_.state.add_replicas()->set_detail("0 of 1 ranks are here");
  look_.state.set_waiting_requests(3);
  const std::string text = Draw();
  EXPECT_THAT(text, HasSubstr("no pool: the replica is not ready: 0 of 1 ranks are here\n"));
  EXPECT_THAT(text, HasSubstr("3 waiting"));
}

}  // namespace
}  // namespace octavo::cli
