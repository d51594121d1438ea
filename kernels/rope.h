#pragma once

// Rotary position embedding (Su et al., arXiv 2104.09864) of queries and keys, and the write of K
// and V into the paged cache: one pass over the rows of a QKV product.
//
// Pair i of a head, of rope_dim / 2, is turned by angle(position, i), whose cosine c and sine s
// come from a table:
//   kInterleaved   elements (2i, 2i + 1)            (GGUF files of the Llama architecture)
//   kHalfSplit     elements (i, i + rope_dim / 2)   (NeoX, Qwen, Hugging Face's own layout)
//   (x0, x1) -> (fma(x0, c, -(x1 * s)), fma(x1, c, x0 * s))
// Elements from rope_dim to head_dim stay as they are. K (turned) and V are rounded to the cache's
// type, to nearest even, on the way into their slot, which is
// table[position / block_size] * block_size + position % block_size, and nothing later reads them
// unrounded.
//
// The table, computed once per model in double with own fma polynomials (no libm, so the bits are
// the same everywhere):
//   frequency[i]       = theta^(-2i / rope_dim) / (linear_scale * factors[i])
//   angle(position, i) = position * frequency[i], reduced modulo pi / 2 in two parts
//   cosine, sine       = Taylor series of degrees 16 and 17, rounded to fp32 once
// Up to position 2^17 each is within half an ulp and 1e-9 of the true value.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/isa.h"
#include "kernels/kv_pages.h"
#include "kernels/work.h"

namespace octavo::kernels {

struct RopeTableArgs {
  int64_t rope_dim = 0;       // even; the elements of a head that are turned
  int64_t max_position = 0;   // rows of the table: positions 0 to max_position - 1; at most 2^20
  double theta = 10000.0;     // base of the frequencies
  double linear_scale = 1.0;  // linear position interpolation: angles are divided by it
  const float* factors = nullptr;  // [rope_dim / 2] divisors (rope_freqs.weight), or null for 1
  float* cosine = nullptr;         // [max_position, rope_dim / 2]
  float* sine = nullptr;           // [max_position, rope_dim / 2]
};

// Work items are positions.
inline int64_t RopeTableWorkCount(const RopeTableArgs& args) { return args.max_position; }
void RopeTable(const RopeTableArgs& args, WorkRange positions);

// The divisors per pair that the Llama 3.1 scaling rule defines ("rope_type": "llama3" of its
// config.json); a GGUF file carries them as rope_freqs.weight instead.
struct Llama3Scaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  double original_context = 8192.0;
};
// REQUIRES: factors.size() == rope_dim / 2.
void Llama3Factors(const Llama3Scaling& scaling, double theta, std::span<float> factors);

enum class RopeStyle : uint8_t { kInterleaved, kHalfSplit };

struct RopeArgs {
  RopeStyle style = RopeStyle::kInterleaved;
  int64_t rope_dim = 0;           // even, at most head_dim
  const float* cosine = nullptr;  // [max_position, rope_dim / 2]
  const float* sine = nullptr;    // [max_position, rope_dim / 2]
  float* q = nullptr;             // [rows.row_count, query_head_count, head_dim], turned in place
  int64_t q_stride = 0;           // floats from one row of q to the next
  int64_t query_head_count = 0;
  const float* k = nullptr;  // [rows.row_count, kv_head_count, head_dim]
  const float* v = nullptr;  // [rows.row_count, kv_head_count, head_dim]
  int64_t kv_stride = 0;     // floats from one row of k, and of v, to the next
  KvRows rows;               // REQUIRES: positions < max_position; no two rows share a slot
  KvPages pages;             // of this layer; written
};

// Work items are rows.
inline int64_t RopeWorkCount(const RopeArgs& args) { return args.rows.row_count; }
OpFunction<RopeArgs> RopeFor(Isa isa);

}  // namespace octavo::kernels
