#include <immintrin.h>

#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {

void AddAvx2(const AddArgs& args, WorkRange rows) {
  const int64_t end = rows.end * args.dim;
  int64_t i = rows.begin * args.dim;
  for (; i + 8 <= end; i += 8) {
    _mm256_storeu_ps(args.sum + i,
                     _mm256_add_ps(_mm256_loadu_ps(args.a + i), _mm256_loadu_ps(args.b + i)));
  }
  for (; i < end; ++i) args.sum[i] = args.a[i] + args.b[i];
}

}  // namespace octavo::kernels
