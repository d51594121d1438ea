#include "kernels/cpu/math_avx2.h"
#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {

void SwiGluAvx2(const SwiGluArgs& args, WorkRange rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* gate = args.gate + row * args.input_stride;
    const float* up = args.up + row * args.input_stride;
    float* y = args.y + row * args.output_stride;
    int64_t i = 0;
    for (; i + 8 <= args.dim; i += 8) {
      _mm256_storeu_ps(y + i,
                       _mm256_mul_ps(Silu8(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    }
    for (; i < args.dim; ++i) y[i] = Silu(gate[i]) * up[i];
  }
}

}  // namespace octavo::kernels
