#include "kernels/math.h"

#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {
namespace {

float Apply(MathFunction function, float x) {
  switch (function) {
    case MathFunction::kExp:
      return Exp(x);
    case MathFunction::kLog:
      return Log(x);
    case MathFunction::kSilu:
      return Silu(x);
    case MathFunction::kRsqrt:
      return Rsqrt(x);
  }
  return x;
}

void MathScalar(const MathArgs& args, WorkRange elements) {
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    args.y[i] = Apply(args.function, args.x[i]);
  }
}

}  // namespace

OpFunction<MathArgs> MathFor(Isa isa) { return isa == Isa::kAvx2 ? MathAvx2 : MathScalar; }

}  // namespace octavo::kernels
