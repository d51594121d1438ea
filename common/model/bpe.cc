#include "common/model/bpe.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/byte_alphabet.h"

namespace octavo {
namespace {

// The text token that `spelling` (in the byte alphabet) stands for.
std::optional<TokenId> FindSpelled(const Vocabulary& vocabulary, absl::string_view spelling) {
  const std::optional<std::string> bytes = SpelledBytes(spelling);
  return bytes ? vocabulary.FindText(*bytes) : std::nullopt;
}

// For std's heaps, whose top is the largest.
bool GoesLater(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.order > b.order;
}

}  // namespace

absl::StatusOr<BpeMerges> BpeMerges::Create(const Vocabulary& vocabulary,
                                            const std::vector<std::string>& merges) {
  BpeMerges bpe;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    bpe.byte_ids_[static_cast<size_t>(byte)] = vocabulary.FindText({&c, 1}).value_or(-1);
  }
  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const absl::string_view merge = merges[rank];
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("merge ", rank, " is \"", merge, "\": ", why));
    };
    const size_t space = merge.find(' ');
    if (space == merge.npos || merge.find(' ', space + 1) != merge.npos) {
      return refuse("it must be two tokens parted by one space");
    }
    const absl::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const std::optional<TokenId> left_id = FindSpelled(vocabulary, left);
    const std::optional<TokenId> right_id = FindSpelled(vocabulary, right);
    const std::optional<TokenId> id = FindSpelled(vocabulary, absl::StrCat(left, right));
    if (!left_id || !right_id || !id) {
      return refuse("its two sides and what they join to must be normal tokens of the vocabulary");
    }
    // Of a merge that is listed twice, the later place counts, as in the `tokenizers` library.
    bpe.merges_[Pair(*left_id, *right_id)] = {.rank = static_cast<uint32_t>(rank), .id = *id};
  }
  bpe.FindWholeTokens(vocabulary);
  return bpe;
}

void BpeMerges::FindWholeTokens(const Vocabulary& vocabulary) {
  is_whole_.assign(vocabulary.size(), false);
  BpeScratch scratch;
  std::vector<TokenId> ids;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary.FindText(vocabulary.Bytes(id)) != id) continue;
    ids.clear();
    Encode(vocabulary.Bytes(id), scratch, ids);
    is_whole_[i] = ids.size() == 1 && ids[0] == id;
  }
}

void BpeMerges::PushCandidate(int32_t position, BpeScratch& scratch) const {
  const BpeScratch::Symbol& left = scratch.symbols[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const TokenId right_id = scratch.symbols[static_cast<size_t>(left.next)].id;
  const auto merge = merges_.find(Pair(left.id, right_id));
  if (merge == merges_.end()) return;
  scratch.heap.push_back(
      {.order = uint64_t{merge->second.rank} << 32 | static_cast<uint32_t>(position),
       .left = left.id,
       .right = right_id,
       .merged = merge->second.id});
}

void BpeMerges::Encode(absl::string_view word, BpeScratch& scratch,
                       std::vector<TokenId>& out) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (const char c : word) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id < 0) continue;
    const auto position = static_cast<int32_t>(symbols.size());
    symbols.push_back({.id = id, .previous = position - 1, .next = position + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) PushCandidate(static_cast<int32_t>(i), scratch);
  std::make_heap(heap.begin(), heap.end(), GoesLater);

  const auto push = [&](int32_t position) {
    const size_t before = heap.size();
    PushCandidate(position, scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), GoesLater);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), GoesLater);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    ++scratch.heap_pops;
    const auto position = static_cast<int32_t>(top.order & 0xFFFFFFFFu);
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(position)];
    // The pair may have gone since: either side merged with its other neighbour.
    if (left.id != top.left || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != top.right) continue;

    left.id = top.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = position;
    if (left.previous >= 0) push(left.previous);
    push(position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    out.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace octavo
