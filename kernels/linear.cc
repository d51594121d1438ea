#include "kernels/linear.h"

#include "kernels/cpu/linear_ops_avx2.h"
#include "kernels/reference/linear_ops.h"

namespace octavo::kernels {
namespace {

void LinearAvx2(const LinearArgs& args, WorkRange items) {
  if (ActivationFormatFor(args.weights.type) == ActivationFormat::kInt16) {
    avx2::LinearInt16(args, items);
  } else {
    avx2::LinearFloat(args, items);
  }
}

}  // namespace

OpFunction<LinearArgs> LinearFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return &reference::Linear;
    case Isa::kAvx2:
      return &LinearAvx2;
  }
  return &reference::Linear;
}

}  // namespace octavo::kernels
