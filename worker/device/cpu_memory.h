#pragma once

// Everything the CPU backend allocates before the first step: repacked weights, embedding tables,
// rotation tables, activations and KV pools, by handle. In come stored tensors; out come the views
// that kernels read.
//
// Thread rule: set-up by one thread while no step runs; what a handle names does not move
// afterwards.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_layout.h"
#include "kernels/kv_pages.h"
#include "kernels/pack.h"
#include "kernels/quantize_rows.h"
#include "worker/device/backend.h"
#include "worker/device/pages.h"
#include "worker/device/thread_pool.h"

namespace octavo {

struct CpuMatrix {
  kernels::PackedMatrix packed;
  int slice_count = 1;
};

struct CpuVector {
  Pages pages;
  uint32_t size = 0;

  const float* data() const { return pages.data<float>(); }
};

struct CpuRope {
  RopeConfig config;
  uint32_t max_position = 0;
  Pages pages;  // cosines, then sines: [max_position, dimension_count / 2] each

  const float* cosine() const { return pages.data<float>(); }
  const float* sine() const {
    return cosine() + size_t{max_position} * (config.dimension_count / 2);
  }
};

// fp32 rows, or a product input: the same rows in each format that its consumers read.
struct CpuActivation {
  uint32_t columns = 0;
  uint32_t max_rows = 0;
  Pages pages;                                  // fp32 rows; empty for a product input
  std::vector<kernels::QuantizedRows> formats;  // of max_rows rows; empty for fp32 rows
  std::vector<Pages> format_pages;

  float* rows() const { return pages.data<float>(); }
};

struct CpuKvPool {
  KvLayout layout;
  uint32_t block_count = 0;
  Pages pages;                         // [layer][block][K|V][kv_head][block_size][head_dim]
  std::vector<uint16_t*> layer_bases;  // [layer_count]

  kernels::KvPages Layer(uint32_t layer) const;
};

class CpuMemory {
 public:
  // `pool` is borrowed for repacking.
  explicit CpuMemory(ThreadPool& pool) : pool_(pool) {}

  absl::StatusOr<MatrixId> LoadMatrix(const MatrixSource& source, uint32_t slice_count);
  VectorId LoadVector(std::span<const float> values);
  absl::StatusOr<EmbeddingId> LoadEmbedding(const MatrixSource& source);
  RopeId LoadRope(const RopeConfig& rope, uint32_t max_position);
  ActivationId CreateActivation(uint32_t columns, uint32_t max_rows);
  ActivationId CreateProductInput(std::span<const MatrixId> consumers, uint32_t max_rows);
  absl::StatusOr<KvPoolId> CreateKvPool(const KvLayout& layout, uint32_t block_count);
  void DestroyKvPool(KvPoolId pool);

  const CpuMatrix& matrix(MatrixId id) const { return matrices_[id.value()]; }
  const CpuVector& vector(VectorId id) const { return vectors_[id.value()]; }
  const MatrixSource& embedding(EmbeddingId id) const { return embeddings_[id.value()]; }
  const CpuRope& rope(RopeId id) const { return ropes_[id.value()]; }
  const CpuActivation& activation(ActivationId id) const { return activations_[id.value()]; }
  const CpuKvPool& kv_pool(KvPoolId id) const { return *kv_pools_[id.value()]; }

  // Columns of the widest activation: what one row of scratch must hold.
  uint32_t max_columns() const { return max_columns_; }
  // Product inputs that Attention fills go through fp32 rows of this buffer: [max_rows, columns] of
  // the largest one.
  float* staging() const { return staging_.data<float>(); }

  BackendMemory Memory() const;

 private:
  absl::StatusOr<uint8_t*> AllocateWeights(size_t bytes);
  void GrowStaging(uint32_t columns, uint32_t max_rows);

  ThreadPool& pool_;
  std::vector<Pages> weight_chunks_;
  size_t weight_chunk_used_ = 0;  // bytes of the last chunk
  std::vector<CpuMatrix> matrices_;
  std::vector<CpuVector> vectors_;
  std::vector<MatrixSource> embeddings_;
  std::vector<CpuRope> ropes_;
  std::vector<CpuActivation> activations_;
  std::vector<std::optional<CpuKvPool>> kv_pools_;  // empty where destroyed
  Pages staging_;
  uint32_t max_columns_ = 0;
  uint64_t weight_bytes_ = 0;
};

}  // namespace octavo
