#include "common/model/stop_strings.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/utf8.h"

namespace octavo {

absl::StatusOr<StopStringMatcher> StopStringMatcher::Create(
    const std::vector<std::string>& stop_strings) {
  if (stop_strings.size() > kMaxStopStrings) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", stop_strings.size(), " stop strings; the limit is ", kMaxStopStrings));
  }
  StopStringMatcher matcher;
  for (size_t i = 0; i < stop_strings.size(); ++i) {
    const std::string& stop = stop_strings[i];
    if (stop.empty() || stop.size() > kMaxStopStringBytes) {
      return absl::InvalidArgumentError(absl::StrCat("stop string ", i, " has ", stop.size(),
                                                     " bytes; it must have 1 to ",
                                                     kMaxStopStringBytes));
    }
    if (const std::optional<size_t> offset = FindInvalidUtf8(stop)) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop string ", i, " is not UTF-8 at byte ", *offset));
    }
    const uint32_t node = matcher.trie_.Insert(stop);
    matcher.states_.resize(matcher.trie_.node_count());
    State& state = matcher.states_[node];
    if (!state.stop_index) state.stop_index = i;
    state.stop_bytes = static_cast<uint32_t>(stop.size());
  }
  matcher.LinkStates();
  return matcher;
}

// Depth by depth, so that the shorter suffix a state falls back to has its own fallback already.
void StopStringMatcher::LinkStates() {
  const std::vector<ByteTrie::Edge>& edges = trie_.edges();
  for (const ByteTrie::Edge& edge : edges) states_[edge.to].depth = states_[edge.from].depth + 1;
  std::vector<size_t> by_depth(edges.size());
  std::iota(by_depth.begin(), by_depth.end(), size_t{0});
  std::sort(by_depth.begin(), by_depth.end(), [&](size_t a, size_t b) {
    return states_[edges[a].to].depth < states_[edges[b].to].depth;
  });
  for (const size_t i : by_depth) {
    const ByteTrie::Edge& edge = edges[i];
    State& state = states_[edge.to];
    if (edge.from != ByteTrie::kRoot) state.fallback = Next(states_[edge.from].fallback, edge.byte);
    const State& shorter = states_[state.fallback];
    if (!state.stop_index && shorter.stop_index) {
      state.stop_index = shorter.stop_index;
      state.stop_bytes = shorter.stop_bytes;
    }
  }
}

uint32_t StopStringMatcher::Next(uint32_t state, unsigned char byte) const {
  while (true) {
    const uint32_t child = trie_.Child(state, byte);
    if (child != ByteTrie::kNone) return child;
    if (state == ByteTrie::kRoot) return ByteTrie::kRoot;
    state = states_[state].fallback;
  }
}

StopStringMatcher::Result StopStringMatcher::Append(absl::string_view text) {
  CHECK(!matched_) << "text after the stop string";
  std::string all = std::exchange(held_, {});
  for (const char c : text) {
    all.push_back(c);
    state_ = Next(state_, static_cast<unsigned char>(c));
    const State& state = states_[state_];
    if (!state.stop_index) continue;
    matched_ = true;
    all.resize(all.size() - state.stop_bytes);
    return {.text = std::move(all), .matched = state.stop_index};
  }
  const size_t shown = all.size() - states_[state_].depth;
  held_ = all.substr(shown);
  all.resize(shown);
  return {.text = std::move(all), .matched = std::nullopt};
}

std::string StopStringMatcher::Finish() {
  CHECK(!matched_) << "the stream has ended already";
  state_ = ByteTrie::kRoot;
  return std::exchange(held_, {});
}

}  // namespace octavo
