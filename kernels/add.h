#pragma once

// The residual stream's sum.  sum = a + b, element by element.

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct AddArgs {
  const float* a = nullptr;  // [row_count, dim]
  const float* b = nullptr;  // [row_count, dim]
  float* sum = nullptr;      // [row_count, dim]; may be a or b
  int64_t row_count = 0;
  int64_t dim = 0;
};

// Work items are rows.
inline int64_t AddWorkCount(const AddArgs& args) { return args.row_count; }
OpFunction<AddArgs> AddFor(Isa isa);

}  // namespace octavo::kernels
