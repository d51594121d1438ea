#pragma once

// Digest of all block tables of one layer group: the sum, modulo 2^64, of EntryDigest over every
// (sequence, index, block). A sum, so that appending, replacing or dropping one entry costs one
// addition and the order of sequences does not matter. The algorithm is part of the protocol
// (proto/octavo/v1/step.proto).

#include <cstdint>

#include "common/ids.h"
#include "common/random.h"

namespace octavo {

constexpr uint64_t EntryDigest(SequenceId sequence, uint32_t index, BlockId block) {
  return Mix64(Mix64(sequence.value()) ^ (uint64_t{index} << 32 | block.value()));
}

}  // namespace octavo
