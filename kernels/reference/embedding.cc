#include "kernels/embedding.h"

#include "kernels/dequantize.h"

namespace octavo::kernels {
namespace {

template <Isa kIsa>
void Embedding(const EmbeddingArgs& args, WorkRange rows) {
  DequantizeFor(kIsa)({.type = args.type,
                       .table = args.table,
                       .row_indices = args.token_ids,
                       .row_count = args.row_count,
                       .columns = args.dim,
                       .output = args.output,
                       .output_stride = args.dim},
                      rows);
}

}  // namespace

OpFunction<EmbeddingArgs> EmbeddingFor(Isa isa) {
  return isa == Isa::kAvx2 ? Embedding<Isa::kAvx2> : Embedding<Isa::kScalar>;
}

}  // namespace octavo::kernels
