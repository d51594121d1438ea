#pragma once

// Which instruction sets this machine offers, and the one rule for using them: the same bits from
// all of them (kernels/README.md).
//
// A source file under kernels/cpu/ named *_avx2.cc is compiled with -mavx2 -mfma -mf16c and may run
// only after DetectIsa() said so. Such a file includes no shared inline or template code that is
// not `static` or constant-evaluated: the linker keeps one copy of an inline function for the whole
// program, and it must not be the one that needs AVX2. Thread-safe: everything here is fixed at the
// first call.

#include <cstdint>
#include <span>

namespace octavo::kernels {

// In ascending order of preference; each later one implies all the earlier ones.
enum class Isa : uint8_t {
  kScalar,  // plain C++, the reference; runs everywhere
  kAvx2,    // AVX2, FMA and F16C, with the upper halves of the registers saved by the system
};

// "scalar", "avx2".
const char* IsaName(Isa isa);

// The best one this machine and its operating system offer.
Isa DetectIsa();

// All of them, kScalar first, DetectIsa() last.
std::span<const Isa> SupportedIsas();

}  // namespace octavo::kernels
