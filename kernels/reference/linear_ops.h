#pragma once

// The plain versions of the linear ops: what kScalar runs, and what every other path must equal bit
// for bit.

#include "kernels/linear.h"
#include "kernels/quantize_rows.h"
#include "kernels/work.h"

namespace octavo::kernels::reference {

void QuantizeRows(const QuantizeRowsArgs& args, WorkRange rows);
void Linear(const LinearArgs& args, WorkRange items);

}  // namespace octavo::kernels::reference
