#include "kernels/add.h"

#include "kernels/cpu/ops_avx2.h"

namespace octavo::kernels {
namespace {

void AddScalar(const AddArgs& args, WorkRange rows) {
  for (int64_t i = rows.begin * args.dim; i < rows.end * args.dim; ++i) {
    args.sum[i] = args.a[i] + args.b[i];
  }
}

}  // namespace

OpFunction<AddArgs> AddFor(Isa isa) { return isa == Isa::kAvx2 ? AddAvx2 : AddScalar; }

}  // namespace octavo::kernels
