#include "kernels/swiglu.h"

#include "kernels/cpu/ops_avx2.h"
#include "kernels/math.h"

namespace octavo::kernels {
namespace {

void SwiGluScalar(const SwiGluArgs& args, WorkRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* gate = args.gate + row * args.input_stride;
    const float* up = args.up + row * args.input_stride;
    float* y = args.y + row * args.output_stride;
    for (int64_t i = 0; i < args.dim; ++i) y[i] = Silu(gate[i]) * up[i];
  }
}

}  // namespace

OpFunction<SwiGluArgs> SwiGluFor(Isa isa) { return isa == Isa::kAvx2 ? SwiGluAvx2 : SwiGluScalar; }

}  // namespace octavo::kernels
