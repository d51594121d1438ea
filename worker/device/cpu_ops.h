#pragma once

// The CPU backend: Backend's ops as commands over kernels. Recording binds arguments; a command
// calls one kernel, or two in a row where the second reads what the first just wrote into the
// thread's own scratch (norm and quantise, gate and quantise).
//
// Thread rule: as worker/device/backend.h.

#include <memory>
#include <string>
#include <vector>

#include "kernels/add.h"
#include "kernels/embedding.h"
#include "kernels/isa.h"
#include "kernels/linear.h"
#include "kernels/paged_attention.h"
#include "kernels/quantize_rows.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "worker/device/backend.h"
#include "worker/device/communicator.h"
#include "worker/device/cpu_memory.h"
#include "worker/device/cpu_sampler.h"
#include "worker/device/cpu_step.h"
#include "worker/device/thread_pool.h"

namespace octavo {

class CpuBackend : public Backend {
 public:
  CpuBackend(uint32_t threads, uint32_t cores, kernels::Isa isa,
             std::unique_ptr<Communicator> communicator);

  std::string Describe() const override;
  BackendMemory Memory() const override { return memory_.Memory(); }

  absl::StatusOr<MatrixId> LoadMatrix(const MatrixSource& source, uint32_t slice_count) override {
    return memory_.LoadMatrix(source, slice_count);
  }
  VectorId LoadVector(std::span<const float> values) override { return memory_.LoadVector(values); }
  absl::StatusOr<EmbeddingId> LoadEmbedding(const MatrixSource& source) override {
    return memory_.LoadEmbedding(source);
  }
  RopeId LoadRope(const RopeConfig& rope, uint32_t max_position) override {
    return memory_.LoadRope(rope, max_position);
  }
  ActivationId CreateActivation(uint32_t columns, uint32_t max_rows) override {
    return memory_.CreateActivation(columns, max_rows);
  }
  ActivationId CreateProductInput(std::span<const MatrixId> consumers, uint32_t max_rows) override {
    return memory_.CreateProductInput(consumers, max_rows);
  }
  absl::StatusOr<KvPoolId> CreateKvPool(const KvLayout& layout, uint32_t block_count) override {
    return memory_.CreateKvPool(layout, block_count);
  }
  void DestroyKvPool(KvPoolId pool) override { memory_.DestroyKvPool(pool); }
  void CreateSequenceSlots(uint32_t count, uint32_t vocab_size) override;
  std::unique_ptr<Step> CreateStep() override { return std::make_unique<CpuStep>(); }

  void Begin(Step& step) override;
  void StartSlots(Step& step) override;
  void CopyBlocks(Step& step, KvPoolId pool, LayerGroup group) override;
  void Embed(Step& step, EmbeddingId table, ActivationId x) override;
  void RmsNorm(Step& step, ActivationId x, VectorId weight, float epsilon, ActivationId y,
               uint32_t rows) override;
  void AddRmsNorm(Step& step, ActivationId delta, ActivationId x, VectorId weight, float epsilon,
                  ActivationId y, uint32_t rows) override;
  void GatherAddRmsNorm(Step& step, ActivationId delta, ActivationId x, VectorId weight,
                        float epsilon, ActivationId y, uint32_t first, uint32_t rows) override;
  void Linear(Step& step, ActivationId x, std::span<const MatrixId> weights, ActivationId y,
              uint32_t rows) override;
  void AllReduce(Step& step, ActivationId y, uint32_t rows) override;
  void RopeAndWriteKv(Step& step, ActivationId qkv, const HeadShape& heads, RopeId rope,
                      KvPoolId pool, LayerGroup group, uint32_t layer) override;
  void Attention(Step& step, ActivationId qkv, const HeadShape& heads, KvPoolId pool,
                 LayerGroup group, uint32_t layer, ActivationId y) override;
  void SwiGlu(Step& step, ActivationId gate_up, ActivationId y, uint32_t rows) override;
  void ChooseTokens(Step& step, ActivationId logits, uint32_t first, uint32_t rows) override;

  void Submit(Step& step) override;
  absl::Status Await(Step& step) override;

 private:
  struct Kernels {
    kernels::OpFunction<kernels::AddArgs> add;
    kernels::OpFunction<kernels::EmbeddingArgs> embedding;
    kernels::OpFunction<kernels::LinearArgs> linear;
    kernels::OpFunction<kernels::PagedAttentionArgs> attention;
    kernels::OpFunction<kernels::PagedAttentionArgs> merge_attention;
    kernels::OpFunction<kernels::QuantizeRowsArgs> quantize_rows;
    kernels::OpFunction<kernels::RmsNormArgs> rms_norm;
    kernels::OpFunction<kernels::RopeArgs> rope;
    kernels::OpFunction<kernels::SwiGluArgs> swiglu;
  };

  // One row of fp32 values into a product input, in every format it keeps.
  struct RowWriter {
    kernels::OpFunction<kernels::QuantizeRowsArgs> quantize_rows;
    const kernels::QuantizedRows* formats;
    size_t format_count;

    void Write(const float* values, int64_t row) const;
  };
  RowWriter WriterOf(const CpuActivation& input) const {
    return {kernels_.quantize_rows, input.formats.data(), input.formats.size()};
  }
  // Two rows of scratch, each of the widest activation, that belong to one pool thread.
  struct Scratch {
    float* base;
    size_t stride;  // floats

    float* First(uint32_t thread) const { return base + 2 * stride * thread; }
    float* Second(uint32_t thread) const { return First(thread) + stride; }
  };
  Scratch ThreadScratch();
  // RmsNorm, and AddRmsNorm where there is a `residual`: [rows, columns of x], else null.
  void RecordRmsNorm(Step& step, const float* residual, ActivationId x, VectorId weight,
                     float epsilon, ActivationId y, uint32_t rows);

  kernels::KvRows RowsOf(const CpuStep& step, LayerGroup group) const;

  kernels::Isa isa_;
  Kernels kernels_;
  ThreadPool pool_;
  CpuMemory memory_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<CpuSampler> sampler_;
  Pages scratch_;
  uint32_t scratch_columns_ = 0;
};

}  // namespace octavo
