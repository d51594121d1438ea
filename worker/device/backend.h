#pragma once

// The seam between the model and the machine: memory and one method per (fused) op. In come weights
// once, then steps: a Step is filled with flat inputs, ops are recorded into it, Submit sets it
// going, Await gives its outputs. Whoever calls never sees a value in between, so a backend may run
// ops one by one on threads (CpuBackend), or capture them into a graph and replay it.
//
// Activations are opaque handles. Their bytes belong to the backend, and so does their format: what
// a product reads may be quantised rows, what it writes fp32 rows, both in memory that the host
// cannot address.
//
// Thread rule: thread-compatible, one caller for everything but Await, which may be called from
// another thread. Invariants: (1) Ops enqueue and return nothing; only Submit and Await
// synchronise. Nothing on the step path allocates device memory. (2) Submitted steps run one after
// the other in the order of Submit, each wholly before the next: a step may be recorded and
//     submitted while the one before it runs, and reads the tokens that one sampled through
//     StepInputs::fed_tokens.
// (3) An element's value depends on its row, the weights and absolute positions alone: never on the
// other rows of the step, the
//     thread count, the instruction set or how rows were cut into steps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/kv_layout.h"
#include "common/model/model_config.h"
#include "common/tensor_type.h"
#include "worker/device/step.h"

namespace octavo {

// Handles of one backend, made at set-up and valid as long as it lives.
using MatrixId = StrongId<struct MatrixIdTag, uint32_t>;          // weights of a product
using VectorId = StrongId<struct VectorIdTag, uint32_t>;          // fp32 weights of a norm
using EmbeddingId = StrongId<struct EmbeddingIdTag, uint32_t>;    // rows looked up by token
using RopeId = StrongId<struct RopeIdTag, uint32_t>;              // a table of rotation frequencies
using ActivationId = StrongId<struct ActivationIdTag, uint32_t>;  // rows between two ops
using KvPoolId = StrongId<struct KvPoolIdTag, uint32_t>;          // the pages of one layer group

// Stored weights, borrowed: [rows, RowBytes(type, columns)]; y = x Wᵀ maps columns to rows.
struct MatrixSource {
  TensorType type = TensorType::kF32;
  uint32_t rows = 0;
  uint32_t columns = 0;
  std::span<const uint8_t> data;
};

// Heads side by side in one row: queries, then keys, then values.
struct HeadShape {
  uint32_t query_head_count = 0;
  uint32_t kv_head_count = 0;
  uint32_t head_dim = 0;

  uint32_t query_width() const { return query_head_count * head_dim; }
  uint32_t kv_width() const { return kv_head_count * head_dim; }
};

// Bytes the backend holds, from its own allocations.
struct BackendMemory {
  uint64_t weight_bytes = 0;      // repacked copies, norms and tables
  uint64_t file_bytes = 0;        // weights read in place from the caller's mapping
  uint64_t activation_bytes = 0;  // when every row is in use
  uint64_t kv_bytes = 0;          // pools, whether touched or not
  uint64_t available_bytes = 0;   // what machine and container leave to this process for more
  uint64_t total_bytes = 0;       // what machine and container have in all

  friend bool operator==(const BackendMemory&, const BackendMemory&) = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu, 2 threads, avx2".
  virtual std::string Describe() const = 0;
  virtual BackendMemory Memory() const = 0;

  // --- Set-up. Copies what it needs unless stated; may take as long as it takes. ---

  // Weights of a product whose K columns are reduced in `slice_count` equal slices added as a
  // binary tree (a power of two; 1: one chain). Unimplemented or InvalidArgument where the backend
  // has no product for this type or shape.
  virtual absl::StatusOr<MatrixId> LoadMatrix(const MatrixSource& source, uint32_t slice_count) = 0;
  virtual VectorId LoadVector(std::span<const float> values) = 0;
  // Keeps reading `source.data`, which must outlive the backend.
  virtual absl::StatusOr<EmbeddingId> LoadEmbedding(const MatrixSource& source) = 0;
  // Rotations for positions 0 to max_position - 1.
  virtual RopeId LoadRope(const RopeConfig& rope, uint32_t max_position) = 0;

  // Rows of `columns` fp32 values that ops write and elementwise ops read.
  virtual ActivationId CreateActivation(uint32_t columns, uint32_t max_rows) = 0;
  // Rows in whatever format the products with `consumers` read. REQUIRES: all consumers have the
  // same column count.
  virtual ActivationId CreateProductInput(std::span<const MatrixId> consumers,
                                          uint32_t max_rows) = 0;

  // Pages [block][K|V][kv_head][block_size][head_dim] for each layer of the group. Address space
  // only: a page costs memory when it is first written. ResourceExhausted naming the bytes where
  // the address space is refused.
  virtual absl::StatusOr<KvPoolId> CreateKvPool(const KvLayout& layout, uint32_t block_count) = 0;
  // Gives its pages back. REQUIRES: every submitted step was awaited, and none that is submitted
  // later names it.
  virtual void DestroyKvPool(KvPoolId pool) = 0;

  // State that outlives a step, by sequence slot: sampling parameters, history, the token sampled
  // last. Slots are 0 to count - 1. Replaces the slots there were. REQUIRES: every submitted step
  // was awaited.
  virtual void CreateSequenceSlots(uint32_t count, uint32_t vocab_size) = 0;

  virtual std::unique_ptr<Step> CreateStep() = 0;

  // --- Recording. `rows` is how many leading rows of the activations an op reads and writes. ---

  // Forgets what `step` recorded before. step.inputs must be filled and stay as they are until the
  // step was awaited. REQUIRES: the step was awaited since it was last submitted.
  virtual void Begin(Step& step) = 0;

  // Sequence slots take the states of inputs.slot_starts; pages are copied as inputs.groups say
  // (all reads before all writes).
  virtual void StartSlots(Step& step) = 0;
  virtual void CopyBlocks(Step& step, KvPoolId pool, LayerGroup group) = 0;

  // x[i] = table[token i], for every input token. [inputs.token_count(), columns]
  virtual void Embed(Step& step, EmbeddingId table, ActivationId x) = 0;
  // y = x / rms(x) × weight.
  virtual void RmsNorm(Step& step, ActivationId x, VectorId weight, float epsilon, ActivationId y,
                       uint32_t rows) = 0;
  // x += delta; y = x / rms(x) × weight.
  virtual void AddRmsNorm(Step& step, ActivationId delta, ActivationId x, VectorId weight,
                          float epsilon, ActivationId y, uint32_t rows) = 0;
  // The same for the input tokens of logits sources [first, first + rows): row i of y is that of
  // inputs.logits_sources[first + i]. x is not changed.
  virtual void GatherAddRmsNorm(Step& step, ActivationId delta, ActivationId x, VectorId weight,
                                float epsilon, ActivationId y, uint32_t first, uint32_t rows) = 0;
  // y = [x W0ᵀ | x W1ᵀ | …], side by side in the order given. x is a product input made for these
  // weights.
  virtual void Linear(Step& step, ActivationId x, std::span<const MatrixId> weights, ActivationId y,
                      uint32_t rows) = 0;
  // y summed over the ranks of the replica, in one fixed tree. Nothing to do where there is one
  // rank.
  virtual void AllReduce(Step& step, ActivationId y, uint32_t rows) = 0;
  // qkv holds queries, keys and values side by side: queries and keys are rotated by their absolute
  // positions, keys and values are rounded to the cache's type and written to their slots in layer
  // `layer` (within the group) of `pool`. All of them are written before the layer's Attention
  // reads any: a row may share what another row of the same step writes.
  virtual void RopeAndWriteKv(Step& step, ActivationId qkv, const HeadShape& heads, RopeId rope,
                              KvPoolId pool, LayerGroup group, uint32_t layer) = 0;
  // y = causal attention of the rotated queries in qkv over the pages, softmax(q·k / √head_dim). y
  // is a product input.
  virtual void Attention(Step& step, ActivationId qkv, const HeadShape& heads, KvPoolId pool,
                         LayerGroup group, uint32_t layer, ActivationId y) = 0;
  // gate_up = [gate | up]; y = silu(gate) × up, a product input.
  virtual void SwiGlu(Step& step, ActivationId gate_up, ActivationId y, uint32_t rows) = 0;
  // Chooses or scores the tokens of logits sources [first, first + rows); row i of `logits` belongs
  // to inputs.logits_sources[first + i] and all its logits rows. Fills outputs.outcomes at the
  // indices of those and, where they sample, the slots' last tokens.
  virtual void ChooseTokens(Step& step, ActivationId logits, uint32_t first, uint32_t rows) = 0;

  // --- Running. ---

  virtual void Submit(Step& step) = 0;
  // Returns when the step has run; its outputs stay until it is begun again. An error means that
  // the device is lost.
  virtual absl::Status Await(Step& step) = 0;
};

}  // namespace octavo
