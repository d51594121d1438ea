#include "kernels/cpu/math_avx2.h"

#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {
namespace {

__m256 Apply8(MathFunction function, __m256 x) {
  switch (function) {
    case MathFunction::kExp:
      return Exp8(x);
    case MathFunction::kLog:
      return Log8(x);
    case MathFunction::kSilu:
      return Silu8(x);
    case MathFunction::kRsqrt:
      return Rsqrt8(x);
  }
  return x;
}

}  // namespace

void MathAvx2(const MathArgs& args, WorkRange elements) {
  for (int64_t i = elements.begin; i < elements.end; i += 8) {
    const int64_t rest = elements.end - i;
    const __m256i lanes = FirstLanes(rest < 8 ? rest : 8);
    _mm256_maskstore_ps(args.y + i, lanes,
                        Apply8(args.function, _mm256_maskload_ps(args.x + i, lanes)));
  }
}

}  // namespace octavo::kernels
