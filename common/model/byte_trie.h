#pragma once

// A prefix tree over byte strings: the shared ground of special tokens (longest match) and stop
// strings (Aho-Corasick). Sparse: one hash entry per edge, so a set of strings costs memory in its
// own length. Thread-compatible: const methods may run at once.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace octavo {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Edge {
    uint32_t from;
    unsigned char byte;
    uint32_t to;
  };

  // Out of line: inlined into a caller, the map's destructor draws GCC 12's -Wfree-nonheap-object.
  ByteTrie();
  ~ByteTrie();
  ByteTrie(ByteTrie&&) noexcept;
  ByteTrie& operator=(ByteTrie&&) noexcept;

  // Adds `text` and returns its node: the same for the same text, a new number, counting up from 1,
  // for each node made.
  uint32_t Insert(absl::string_view text);

  // The node below `node` along `byte`, or kNone.
  uint32_t Child(uint32_t node, unsigned char byte) const {
    const auto edge = next_.find(Key(node, byte));
    return edge == next_.end() ? kNone : edge->second;
  }

  uint32_t node_count() const { return static_cast<uint32_t>(edges_.size()) + 1; }

  // All edges; a node's incoming edge stands before its outgoing ones. Edge i leads to node i + 1.
  const std::vector<Edge>& edges() const { return edges_; }

 private:
  static uint64_t Key(uint32_t node, unsigned char byte) { return uint64_t{node} << 8 | byte; }

  absl::flat_hash_map<uint64_t, uint32_t> next_;
  std::vector<Edge> edges_;
};

}  // namespace octavo
