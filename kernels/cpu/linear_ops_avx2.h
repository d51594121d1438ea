#pragma once

// The AVX2 versions of the linear ops. REQUIRES of every call: DetectIsa() >= Isa::kAvx2.

#include "kernels/linear.h"
#include "kernels/quantize_rows.h"
#include "kernels/work.h"

namespace octavo::kernels::avx2 {

void QuantizeRows(const QuantizeRowsArgs& args, WorkRange rows);
void LinearInt16(const LinearArgs& args, WorkRange items);  // every quantised type
void LinearFloat(const LinearArgs& args, WorkRange items);  // BF16, F16, F32

}  // namespace octavo::kernels::avx2
