#include "common/model/jinja_sort.h"

#include <algorithm>
#include <utility>

#include "common/model/jinja_operators.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

// Merges the sorted runs [begin, middle) and [middle, end) of `from` into `to`; of equals the left
// one comes first.
absl::Status MergeRuns(Runtime& runtime, std::vector<Keyed>& from, size_t begin, size_t middle,
                       size_t end, bool is_reversed, std::vector<Keyed>& to) {
  size_t left = begin;
  size_t right = middle;
  for (size_t at = begin; at < end; ++at) {
    bool takes_right = left == middle;
    if (left < middle && right < end) {
      OCTAVO_ASSIGN_OR_RETURN(takes_right, is_reversed
                                               ? Less(runtime, from[left].key, from[right].key)
                                               : Less(runtime, from[right].key, from[left].key));
    }
    to[at] = std::move(from[takes_right ? right++ : left++]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> Sorted(Runtime& runtime, std::vector<Keyed> keyed, bool is_reversed) {
  const size_t count = keyed.size();
  OCTAVO_RETURN_IF_ERROR(runtime.Charge(kElementCost * count));
  std::vector<Keyed> merged(count);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      OCTAVO_RETURN_IF_ERROR(MergeRuns(runtime, keyed, begin, std::min(begin + width, count),
                                       std::min(begin + 2 * width, count), is_reversed, merged));
    }
    keyed.swap(merged);
  }
  std::vector<Value> items;
  items.reserve(count);
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return runtime.NewSequence(std::move(items), SequenceKind::kList);
}

}  // namespace octavo::jinja
