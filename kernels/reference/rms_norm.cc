#include "kernels/rms_norm.h"

#include "kernels/cpu/ops_avx2.h"
#include "kernels/math.h"

namespace octavo::kernels {
namespace {

void RmsNormScalar(const RmsNormArgs& args, WorkRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* x = args.x + row * args.dim;
    float* y = args.y + row * args.dim;
    if (args.residual != nullptr) {
      for (int64_t i = 0; i < args.dim; ++i) x[i] = x[i] + args.residual[row * args.dim + i];
    }
    float lanes[16] = {};
    for (int64_t i = 0; i < args.dim; ++i) lanes[i % 16] = Fma(x[i], x[i], lanes[i % 16]);
    const float mean = SumOf16(lanes) / static_cast<float>(args.dim);
    const float scale = Rsqrt(mean + args.epsilon);
    for (int64_t i = 0; i < args.dim; ++i) y[i] = (x[i] * scale) * args.weight[i];
  }
}

}  // namespace

OpFunction<RmsNormArgs> RmsNormFor(Isa isa) {
  return isa == Isa::kAvx2 ? RmsNormAvx2 : RmsNormScalar;
}

}  // namespace octavo::kernels
