#include "common/random.h"

namespace octavo {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

uint32_t RandomBits(uint64_t seed, uint64_t position, uint32_t draw) {
  const std::array<uint32_t, 4> counter = {static_cast<uint32_t>(position),
                                           static_cast<uint32_t>(position >> 32), draw / 4, 0};
  return Philox4x32(counter,
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[draw % 4];
}

float RandomUniform(uint64_t seed, uint64_t position, uint32_t draw) {
  const uint32_t bits = RandomBits(seed, position, draw) >> 9;  // 23 bits
  return (static_cast<float>(bits) + 0.5f) * 0x1p-23f;
}

}  // namespace octavo
