#include "worker/device/cpu_ops.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/copy_blocks.h"

namespace octavo {
namespace {

CpuStep& Cpu(Step& step) { return static_cast<CpuStep&>(step); }

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

CpuBackend::CpuBackend(uint32_t threads, uint32_t cores, kernels::Isa isa,
                       std::unique_ptr<Communicator> communicator)
    : isa_(isa),
      kernels_{.add = kernels::AddFor(isa),
               .embedding = kernels::EmbeddingFor(isa),
               .linear = kernels::LinearFor(isa),
               .attention = kernels::PagedAttentionFor(isa),
               .merge_attention = kernels::MergeAttentionFor(isa),
               .quantize_rows = kernels::QuantizeRowsFor(isa),
               .rms_norm = kernels::RmsNormFor(isa),
               .rope = kernels::RopeFor(isa),
               .swiglu = kernels::SwiGluFor(isa)},
      pool_(threads, cores),
      memory_(pool_),
      communicator_(std::move(communicator)) {}

std::string CpuBackend::Describe() const {
  return absl::StrCat("cpu ", kernels::IsaName(isa_), ", ", pool_.thread_count(),
                      pool_.thread_count() == 1 ? " thread" : " threads");
}

void CpuBackend::CreateSequenceSlots(uint32_t count, uint32_t vocab_size) {
  sampler_ = std::make_unique<CpuSampler>(isa_, count, vocab_size);
}

CpuBackend::Scratch CpuBackend::ThreadScratch() {
  if (scratch_columns_ < memory_.max_columns()) {
    scratch_columns_ = (memory_.max_columns() + 15) / 16 * 16;
    absl::StatusOr<Pages> pages =
        Pages::Map(sizeof(float) * 2 * scratch_columns_ * pool_.thread_count(), /*huge=*/false);
    CHECK(pages.ok()) << pages.status();
    scratch_ = *std::move(pages);
  }
  return {.base = scratch_.data<float>(), .stride = scratch_columns_};
}

void CpuBackend::RowWriter::Write(const float* values, int64_t row) const {
  for (size_t i = 0; i < format_count; ++i) {
    quantize_rows({.input = values,
                   .input_stride = formats[i].dim,
                   .output = kernels::SliceRows(formats[i], row, 1)},
                  {0, 1});
  }
}

void CpuBackend::Begin(Step& base) {
  CpuStep& step = Cpu(base);
  ThreadPool::WaitReleased(step.commands);
  step.commands.Clear();
  const StepInputs& inputs = step.inputs;
  step.tokens = inputs.token_ids;
  step.fed_slots.assign(inputs.token_ids.size(), -1);
  for (const FedToken& fed : inputs.fed_tokens)
    step.fed_slots[fed.token] = static_cast<int32_t>(fed.slot);
  step.attention.resize(inputs.groups.size());
  for (CpuAttention& attention : step.attention) attention.planned = false;
  step.copy_scratch.resize(inputs.groups.size());
  step.status = absl::OkStatus();
  step.outputs.outcomes.assign(inputs.logits_rows.size(), {});
  step.outputs.forward_ns = 0;
  step.outputs.sample_ns = 0;
  step.commands.Add(1, [&step](int64_t, int64_t, uint32_t) { step.started_ns = NowNs(); });
}

void CpuBackend::StartSlots(Step& step) {
  const std::vector<SlotStart>& starts = step.inputs.slot_starts;
  Cpu(step).commands.Add(static_cast<int64_t>(starts.size()),
                         [&starts, sampler = sampler_.get()](int64_t begin, int64_t end, uint32_t) {
                           for (int64_t i = begin; i < end; ++i) sampler->Start(starts[i]);
                         });
}

void CpuBackend::CopyBlocks(Step& base, KvPoolId pool_id, LayerGroup group) {
  CpuStep& step = Cpu(base);
  const std::vector<kernels::SlotCopy>& copies = step.inputs.groups[group.value()].copies;
  if (copies.empty()) return;
  const CpuKvPool& pool = memory_.kv_pool(pool_id);
  kernels::CopyBlocksArgs args{.pages = pool.Layer(0),
                               .layer_bases = pool.layer_bases.data(),
                               .layer_count = pool.layout.layer_count,
                               .copies = copies.data(),
                               .copy_count = static_cast<int64_t>(copies.size())};
  if (!kernels::CopiesAreIndependent(args)) {
    std::vector<uint16_t>& scratch = step.copy_scratch[group.value()];
    scratch.resize(kernels::CopyBlocksScratchBytes(args) / sizeof(uint16_t));
    args.scratch = scratch.data();
  }
  step.commands.Add(
      kernels::CopyBlocksWorkCount(args),
      [args](int64_t begin, int64_t end, uint32_t) { kernels::CopyBlocks(args, {begin, end}); });
}

void CpuBackend::Embed(Step& base, EmbeddingId table_id, ActivationId x_id) {
  CpuStep& step = Cpu(base);
  const MatrixSource& table = memory_.embedding(table_id);
  const CpuActivation& x = memory_.activation(x_id);
  CHECK_LE(step.tokens.size(), x.max_rows);
  const kernels::EmbeddingArgs args{.type = table.type,
                                    .table = table.data.data(),
                                    .token_ids = step.tokens.data(),
                                    .output = x.rows(),
                                    .row_count = static_cast<int64_t>(step.tokens.size()),
                                    .dim = table.columns};
  step.commands.Add(
      args.row_count, [args, &step, embedding = kernels_.embedding, sampler = sampler_.get()](
                          int64_t begin, int64_t end, uint32_t) {
        for (int64_t i = begin; i < end; ++i) {
          if (step.fed_slots[i] >= 0)
            step.tokens[i] = sampler->last_token(static_cast<uint32_t>(step.fed_slots[i]));
        }
        embedding(args, {begin, end});
      });
}

void CpuBackend::RmsNorm(Step& step, ActivationId x, VectorId weight, float epsilon, ActivationId y,
                         uint32_t rows) {
  RecordRmsNorm(step, /*residual=*/nullptr, x, weight, epsilon, y, rows);
}

void CpuBackend::AddRmsNorm(Step& step, ActivationId delta_id, ActivationId x, VectorId weight,
                            float epsilon, ActivationId y, uint32_t rows) {
  const CpuActivation& delta = memory_.activation(delta_id);
  CHECK_LE(rows, delta.max_rows);
  RecordRmsNorm(step, delta.rows(), x, weight, epsilon, y, rows);
}

void CpuBackend::RecordRmsNorm(Step& step, const float* residual, ActivationId x_id,
                               VectorId weight, float epsilon, ActivationId y_id, uint32_t rows) {
  const CpuActivation& x = memory_.activation(x_id);
  const CpuActivation& y = memory_.activation(y_id);
  CHECK_LE(rows, std::min(x.max_rows, y.max_rows));
  const kernels::RmsNormArgs args{.x = x.rows(),
                                  .residual = residual,
                                  .weight = memory_.vector(weight).data(),
                                  .row_count = 1,
                                  .dim = x.columns,
                                  .epsilon = epsilon};
  Cpu(step).commands.Add(
      rows, [args, writer = WriterOf(y), scratch = ThreadScratch(), norm = kernels_.rms_norm](
                int64_t begin, int64_t end, uint32_t thread) {
        kernels::RmsNormArgs row = args;
        row.y = scratch.First(thread);
        for (int64_t i = begin; i < end; ++i) {
          row.x = args.x + i * args.dim;
          if (args.residual != nullptr) row.residual = args.residual + i * args.dim;
          norm(row, {0, 1});
          writer.Write(row.y, i);
        }
      });
}

void CpuBackend::GatherAddRmsNorm(Step& step, ActivationId delta_id, ActivationId x_id,
                                  VectorId weight, float epsilon, ActivationId y_id, uint32_t first,
                                  uint32_t rows) {
  const CpuActivation& x = memory_.activation(x_id);
  const CpuActivation& y = memory_.activation(y_id);
  CHECK_LE(rows, y.max_rows);
  const kernels::AddArgs add{
      .a = x.rows(), .b = memory_.activation(delta_id).rows(), .row_count = 1, .dim = x.columns};
  const kernels::RmsNormArgs args{.weight = memory_.vector(weight).data(),
                                  .row_count = 1,
                                  .dim = x.columns,
                                  .epsilon = epsilon};
  const LogitsSource* wanted = step.inputs.logits_sources.data() + first;
  Cpu(step).commands.Add(rows, [add, args, wanted, writer = WriterOf(y), scratch = ThreadScratch(),
                                add_rows = kernels_.add, norm = kernels_.rms_norm](
                                   int64_t begin, int64_t end, uint32_t thread) {
    // The sum goes to scratch: x stays as the layers left it.
    kernels::AddArgs sum = add;
    sum.sum = scratch.First(thread);
    kernels::RmsNormArgs row = args;
    row.x = sum.sum;
    row.y = scratch.Second(thread);
    for (int64_t i = begin; i < end; ++i) {
      sum.a = add.a + wanted[i].token * add.dim;
      sum.b = add.b + wanted[i].token * add.dim;
      add_rows(sum, {0, 1});
      norm(row, {0, 1});
      writer.Write(row.y, i);
    }
  });
}

void CpuBackend::Linear(Step& base, ActivationId x_id, std::span<const MatrixId> weights,
                        ActivationId y_id, uint32_t rows) {
  CpuStep& step = Cpu(base);
  const CpuActivation& x = memory_.activation(x_id);
  const CpuActivation& y = memory_.activation(y_id);
  CHECK_LE(rows, std::min(x.max_rows, y.max_rows));
  // One command for all products of one input, so that threads cross no barrier between them.
  const size_t count = weights.size();
  kernels::LinearArgs* products = step.commands.arena().NewArray<kernels::LinearArgs>(count);
  int64_t items = 0;
  int64_t column = 0;
  for (size_t i = 0; i < count; ++i) {
    const CpuMatrix& matrix = memory_.matrix(weights[i]);
    const kernels::ActivationFormat format = kernels::ActivationFormatFor(matrix.packed.type);
    const auto input =
        std::find_if(x.formats.begin(), x.formats.end(),
                     [&](const kernels::QuantizedRows& f) { return f.format == format; });
    CHECK(input != x.formats.end()) << "the product input was not made for these weights";
    products[i] = {.weights = matrix.packed,
                   .activations = kernels::SliceRows(*input, 0, rows),
                   .output = y.rows() + column,
                   .output_stride = y.columns,
                   .slice_count = matrix.slice_count};
    column += matrix.packed.rows;
    items += kernels::LinearWorkCount(products[i]);
  }
  CHECK_EQ(column, y.columns);
  step.commands.Add(
      items, [products, count, linear = kernels_.linear](int64_t begin, int64_t end, uint32_t) {
        int64_t first = 0;  // item of products[i]
        for (size_t i = 0; i < count && first < end; ++i) {
          const int64_t size = kernels::LinearWorkCount(products[i]);
          const int64_t from = std::max(begin, first) - first;
          const int64_t to = std::min(end - first, size);
          if (from < to) linear(products[i], {from, to});
          first += size;
        }
      });
}

void CpuBackend::AllReduce(Step& base, ActivationId y_id, uint32_t rows) {
  if (communicator_->world_size() == 1) return;
  CpuStep& step = Cpu(base);
  const CpuActivation& y = memory_.activation(y_id);
  const std::span<float> values(y.rows(), size_t{rows} * y.columns);
  step.commands.Add(
      1, [values, &step, communicator = communicator_.get()](int64_t, int64_t, uint32_t) {
        step.status.Update(communicator->AllReduceSum(values));
      });
}

kernels::KvRows CpuBackend::RowsOf(const CpuStep& step, LayerGroup group) const {
  const GroupInputs& tables = step.inputs.groups[group.value()];
  return {.row_count = static_cast<int64_t>(step.inputs.positions.size()),
          .sequences = step.inputs.token_sequences.data(),
          .positions = step.inputs.positions.data(),
          .block_tables = tables.block_tables.data(),
          .table_offsets = tables.table_offsets.data()};
}

void CpuBackend::RopeAndWriteKv(Step& base, ActivationId qkv_id, const HeadShape& heads,
                                RopeId rope_id, KvPoolId pool, LayerGroup group, uint32_t layer) {
  CpuStep& step = Cpu(base);
  const CpuActivation& qkv = memory_.activation(qkv_id);
  const CpuRope& rope = memory_.rope(rope_id);
  const kernels::RopeArgs args{.style = rope.config.style == RopeStyle::kInterleaved
                                            ? kernels::RopeStyle::kInterleaved
                                            : kernels::RopeStyle::kHalfSplit,
                               .rope_dim = rope.config.dimension_count,
                               .cosine = rope.cosine(),
                               .sine = rope.sine(),
                               .q = qkv.rows(),
                               .q_stride = qkv.columns,
                               .query_head_count = heads.query_head_count,
                               .k = qkv.rows() + heads.query_width(),
                               .v = qkv.rows() + heads.query_width() + heads.kv_width(),
                               .kv_stride = qkv.columns,
                               .rows = RowsOf(step, group),
                               .pages = memory_.kv_pool(pool).Layer(layer)};
  step.commands.Add(kernels::RopeWorkCount(args),
                    [args, turn = kernels_.rope](int64_t begin, int64_t end, uint32_t) {
                      turn(args, {begin, end});
                    });
}

void CpuBackend::Attention(Step& base, ActivationId qkv_id, const HeadShape& heads, KvPoolId pool,
                           LayerGroup group, uint32_t layer, ActivationId y_id) {
  CpuStep& step = Cpu(base);
  const CpuActivation& qkv = memory_.activation(qkv_id);
  const CpuActivation& y = memory_.activation(y_id);
  const kernels::KvRows rows = RowsOf(step, group);
  CpuAttention& attention = step.attention[group.value()];
  if (!attention.planned) {
    const kernels::AttentionShape shape{.query_head_count = heads.query_head_count,
                                        .kv_head_count = heads.kv_head_count,
                                        .head_dim = heads.head_dim,
                                        .thread_count = pool_.thread_count()};
    kernels::PlanPagedAttention(shape, rows, &attention.plan);
    const size_t bytes = sizeof(float) * kernels::AttentionScratchFloats(shape, attention.plan);
    if (bytes > attention.scratch.size()) {
      absl::StatusOr<Pages> pages = Pages::Map(bytes, /*huge=*/false);
      CHECK(pages.ok()) << pages.status();
      attention.scratch = *std::move(pages);
    }
    attention.planned = true;
  }
  const kernels::PagedAttentionArgs args{
      .q = qkv.rows(),
      .q_stride = qkv.columns,
      .out = memory_.staging(),
      .query_head_count = heads.query_head_count,
      .scale = 1.0f / std::sqrt(static_cast<float>(heads.head_dim)),
      .rows = rows,
      .pages = memory_.kv_pool(pool).Layer(layer),
      .items = attention.plan.items.data(),
      .item_count = static_cast<int64_t>(attention.plan.items.size()),
      .merges = attention.plan.merges.data(),
      .merge_count = static_cast<int64_t>(attention.plan.merges.size()),
      .scratch = attention.scratch.data<float>()};
  step.commands.Add(kernels::PagedAttentionWorkCount(args),
                    [args, attend = kernels_.attention](int64_t begin, int64_t end, uint32_t) {
                      attend(args, {begin, end});
                    });
  step.commands.Add(kernels::MergeAttentionWorkCount(args),
                    [args, merge = kernels_.merge_attention](int64_t begin, int64_t end, uint32_t) {
                      merge(args, {begin, end});
                    });
  CHECK_EQ(y.columns, heads.query_width());
  step.commands.Add(rows.row_count,
                    [writer = WriterOf(y), out = args.out, columns = int64_t{y.columns}](
                        int64_t begin, int64_t end, uint32_t) {
                      for (int64_t i = begin; i < end; ++i) writer.Write(out + i * columns, i);
                    });
}

void CpuBackend::SwiGlu(Step& step, ActivationId gate_up_id, ActivationId y_id, uint32_t rows) {
  const CpuActivation& gate_up = memory_.activation(gate_up_id);
  const CpuActivation& y = memory_.activation(y_id);
  CHECK_LE(rows, std::min(gate_up.max_rows, y.max_rows));
  CHECK_EQ(gate_up.columns, 2 * y.columns);
  const kernels::SwiGluArgs args{.gate = gate_up.rows(),
                                 .input_stride = gate_up.columns,
                                 .output_stride = y.columns,
                                 .row_count = 1,
                                 .dim = y.columns};
  Cpu(step).commands.Add(
      rows, [args, writer = WriterOf(y), scratch = ThreadScratch(), swiglu = kernels_.swiglu](
                int64_t begin, int64_t end, uint32_t thread) {
        kernels::SwiGluArgs row = args;
        row.y = scratch.First(thread);
        for (int64_t i = begin; i < end; ++i) {
          row.gate = args.gate + i * args.input_stride;
          row.up = row.gate + args.dim;
          swiglu(row, {0, 1});
          writer.Write(row.y, i);
        }
      });
}

void CpuBackend::ChooseTokens(Step& base, ActivationId logits_id, uint32_t first, uint32_t rows) {
  CpuStep& step = Cpu(base);
  const CpuActivation& logits = memory_.activation(logits_id);
  CHECK_LE(rows, logits.max_rows);
  step.commands.Add(1, [&step](int64_t, int64_t, uint32_t) { step.choose_started_ns = NowNs(); });
  step.commands.Add(rows, [&step, first, base = logits.rows(), columns = int64_t{logits.columns},
                           sampler = sampler_.get()](int64_t begin, int64_t end, uint32_t) {
    // One after the other: a choice changes the logits while it looks at them.
    for (int64_t i = begin; i < end; ++i) {
      const LogitsSource& source = step.inputs.logits_sources[first + i];
      for (uint32_t row = source.first_row; row < source.first_row + source.row_count; ++row) {
        sampler->Choose(step.inputs.logits_rows[row], base + i * columns,
                        step.outputs.outcomes[row]);
      }
    }
  });
  step.commands.Add(1, [&step](int64_t, int64_t, uint32_t) {
    step.outputs.sample_ns += NowNs() - step.choose_started_ns;
  });
}

void CpuBackend::Submit(Step& base) {
  CpuStep& step = Cpu(base);
  step.commands.Add(1, [&step](int64_t, int64_t, uint32_t) {
    step.outputs.forward_ns = NowNs() - step.started_ns - step.outputs.sample_ns;
  });
  pool_.Submit(step.commands);
}

absl::Status CpuBackend::Await(Step& base) {
  CpuStep& step = Cpu(base);
  ThreadPool::WaitFinished(step.commands);
  return step.status;
}

}  // namespace octavo
