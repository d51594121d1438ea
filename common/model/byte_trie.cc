#include "common/model/byte_trie.h"

namespace octavo {

ByteTrie::ByteTrie() = default;
ByteTrie::~ByteTrie() = default;
ByteTrie::ByteTrie(ByteTrie&&) noexcept = default;
ByteTrie& ByteTrie::operator=(ByteTrie&&) noexcept = default;

uint32_t ByteTrie::Insert(absl::string_view text) {
  uint32_t node = kRoot;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto next = static_cast<uint32_t>(edges_.size()) + 1;
    const auto [edge, inserted] = next_.try_emplace(Key(node, byte), next);
    if (inserted) edges_.push_back({.from = node, .byte = byte, .to = next});
    node = edge->second;
  }
  return node;
}

}  // namespace octavo
