#pragma once

// The AVX2 implementations of the ops of this room, one source file each beside this header. Run
// only after DetectIsa() found AVX2; reference/<op>.cc hands them out.

#include "kernels/add.h"
#include "kernels/math.h"
#include "kernels/paged_attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "kernels/work.h"

namespace octavo::kernels {

void MathAvx2(const MathArgs& args, WorkRange elements);
void AddAvx2(const AddArgs& args, WorkRange rows);
void RmsNormAvx2(const RmsNormArgs& args, WorkRange rows);
void SwiGluAvx2(const SwiGluArgs& args, WorkRange rows);
void RopeAvx2(const RopeArgs& args, WorkRange rows);
void PagedAttentionAvx2(const PagedAttentionArgs& args, WorkRange items);
void MergeAttentionAvx2(const PagedAttentionArgs& args, WorkRange merges);

}  // namespace octavo::kernels
