#include "kernels/fp_env.h"

#include <xmmintrin.h>

namespace octavo::kernels {
namespace {

constexpr uint32_t kDenormalsAreZero = 1u << 6;
constexpr uint32_t kFlushToZero = 1u << 15;
constexpr uint32_t kAllExceptionsMasked = 0x1f80;  // and rounding control 00: nearest even

}  // namespace

FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  _mm_setcsr(kAllExceptionsMasked | kDenormalsAreZero | kFlushToZero);
}

FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }

bool FlushDenormals::IsActive() {
  constexpr uint32_t kExceptionFlags = 0x3f;
  return (_mm_getcsr() & ~kExceptionFlags) ==
         (kAllExceptionsMasked | kDenormalsAreZero | kFlushToZero);
}

}  // namespace octavo::kernels
