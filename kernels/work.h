#pragma once

// How every op of this folder is called: a plain struct of pointers and sizes says what, a range of
// work items says which part.
//
//   int64_t  <Op>WorkCount(const <Op>Args&);            how many independent items the call falls
//   into (0 for an empty batch) OpFunction<<Op>Args> <Op>For(Isa);                  the
//   implementation for an instruction set function(args, WorkRange{begin, end}); computes the items
//   begin <= i < end, writing nothing else
//
// Invariants of every op:
// (1) The bits of an item depend on the arguments that describe it alone: not on the range it is
// called in, not on the thread,
//     not on the other rows of the batch, not on the instruction set. Items may be handed out in
//     any order and stolen freely.
// (2) Items write disjoint memory, so ranges of one call may run at the same time.
// (3) An op allocates nothing and reports nothing; what it requires of its arguments is the
// caller's to keep. (4) The calling thread holds FlushDenormals (kernels/fp_env.h).

#include <cstdint>

namespace octavo::kernels {

struct WorkRange {
  int64_t begin = 0;
  int64_t end = 0;
};

template <typename Args>
using OpFunction = void (*)(const Args& args, WorkRange items);

}  // namespace octavo::kernels
