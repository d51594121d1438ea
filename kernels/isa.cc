#include "kernels/isa.h"

#include <cpuid.h>
#include <immintrin.h>

#include <array>

namespace octavo::kernels {
namespace {

constexpr std::array kAll = {Isa::kScalar, Isa::kAvx2};

// XCR0, the register state the operating system saves. Emitted as bytes so that this file needs no
// -mxsave.
uint64_t SavedRegisterState() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool HasAvx2() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  constexpr uint32_t kFma = 1u << 12, kOsXsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;
  constexpr uint32_t kWanted = kFma | kOsXsave | kAvx | kF16c;
  if ((c & kWanted) != kWanted) return false;
  constexpr uint64_t kSseAndAvxState = 0x6;
  if ((SavedRegisterState() & kSseAndAvxState) != kSseAndAvxState) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (b & (1u << 5)) != 0;
}

}  // namespace

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
  }
  return "?";
}

Isa DetectIsa() {
  static const Isa best = HasAvx2() ? Isa::kAvx2 : Isa::kScalar;
  return best;
}

std::span<const Isa> SupportedIsas() {
  return std::span(kAll).first(static_cast<size_t>(DetectIsa()) + 1);
}

}  // namespace octavo::kernels
