#include "kernels/cpu/math_avx2.h"
#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {
namespace {

// The sum of squares of a row. Virtual lanes 0..7 live in one register, 8..15 in another; lanes
// past the end read as zero, and adding 0 * 0 to a sum of squares changes nothing.
float SumOfSquares(const float* x, int64_t dim) {
  __m256 low = _mm256_setzero_ps();
  __m256 high = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    const __m256 a = _mm256_loadu_ps(x + i);
    const __m256 b = _mm256_loadu_ps(x + i + 8);
    low = _mm256_fmadd_ps(a, a, low);
    high = _mm256_fmadd_ps(b, b, high);
  }
  const int64_t rest = dim - i;
  if (rest > 0) {
    const __m256 a = _mm256_maskload_ps(x + i, FirstLanes(rest < 8 ? rest : 8));
    low = _mm256_fmadd_ps(a, a, low);
  }
  if (rest > 8) {
    const __m256 b = _mm256_maskload_ps(x + i + 8, FirstLanes(rest - 8));
    high = _mm256_fmadd_ps(b, b, high);
  }
  return SumOf16(low, high);
}

}  // namespace

void RmsNormAvx2(const RmsNormArgs& args, WorkRange rows) {
  const int64_t dim = args.dim;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* x = args.x + row * dim;
    float* y = args.y + row * dim;
    if (args.residual != nullptr) {
      AddAvx2({.a = x, .b = args.residual + row * dim, .sum = x, .row_count = 1, .dim = dim},
              {0, 1});
    }
    const float mean = SumOfSquares(x, dim) / static_cast<float>(dim);
    const float scale = Rsqrt(mean + args.epsilon);
    const __m256 scale8 = _mm256_set1_ps(scale);
    int64_t i = 0;
    for (; i + 8 <= dim; i += 8) {
      _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), scale8),
                                            _mm256_loadu_ps(args.weight + i)));
    }
    for (; i < dim; ++i) y[i] = (x[i] * scale) * args.weight[i];
  }
}

}  // namespace octavo::kernels
