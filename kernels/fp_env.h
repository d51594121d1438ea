#pragma once

// Sets the thread's floating-point unit to what every op here assumes: round to nearest even,
// subnormal inputs read as zero (DAZ), subnormal results written as zero (FTZ). AMX knows no other
// mode, so the other paths follow it; it also spares the slow path that subnormals take. Exceptions
// stay masked. Restores what was there at the end of its scope.
//
// Thread rule: acts on the constructing thread and must end on it.

#include <cstdint>

namespace octavo::kernels {

class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

  // True when the calling thread is in that mode.
  static bool IsActive();

 private:
  uint32_t saved_;
};

}  // namespace octavo::kernels
