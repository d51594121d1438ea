#include "worker/device/cpu_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "glog/logging.h"
#include "kernels/linear.h"
#include "kernels/rope.h"
#include "worker/device/machine.h"

namespace octavo {
namespace {

constexpr size_t kWeightChunkBytes = size_t{64} << 20;
constexpr size_t kWeightAlignment = 64;

static_assert(static_cast<int>(kernels::KvElement::kF16) == static_cast<int>(KvType::kF16));
static_assert(static_cast<int>(kernels::KvElement::kBF16) == static_cast<int>(KvType::kBF16));

// Set-up memory that every machine able to hold the weights can give.
Pages MapOrDie(size_t bytes) {
  absl::StatusOr<Pages> pages = Pages::Map(bytes, /*huge=*/false);
  CHECK(pages.ok()) << pages.status();
  return *std::move(pages);
}

}  // namespace

kernels::KvPages CpuKvPool::Layer(uint32_t layer) const {
  return {.base = layer_bases[layer],
          .element = static_cast<kernels::KvElement>(layout.kv_type),
          .block_size = layout.block_size,
          .kv_head_count = layout.kv_head_count,
          .head_dim = layout.head_dim};
}

absl::StatusOr<uint8_t*> CpuMemory::AllocateWeights(size_t bytes) {
  bytes = (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  if (weight_chunks_.empty() || weight_chunk_used_ + bytes > weight_chunks_.back().size()) {
    OCTAVO_ASSIGN_OR_RETURN(Pages chunk,
                            Pages::Map(std::max(bytes, kWeightChunkBytes), /*huge=*/true));
    weight_chunks_.push_back(std::move(chunk));
    weight_chunk_used_ = 0;
  }
  uint8_t* at = weight_chunks_.back().data<uint8_t>() + weight_chunk_used_;
  weight_chunk_used_ += bytes;
  weight_bytes_ += bytes;
  return at;
}

absl::StatusOr<MatrixId> CpuMemory::LoadMatrix(const MatrixSource& source, uint32_t slice_count) {
  const int64_t unit = kernels::PackUnit(source.type);
  if (source.rows == 0 || source.columns == 0 || source.columns % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a product with weights [", source.rows, ", ", source.columns, "] of type ",
        TraitsOf(source.type).name, " is not served: columns must be a multiple of ", unit));
  }
  OCTAVO_ASSIGN_OR_RETURN(uint8_t* packed, AllocateWeights(kernels::PackedBytes(
                                               source.type, source.rows, source.columns)));
  const kernels::PackArgs args{
      .type = source.type,
      .source = source.data.data(),
      .source_stride = static_cast<int64_t>(RowBytes(source.type, source.columns)),
      .rows = source.rows,
      .columns = source.columns,
      .packed = packed,
  };
  pool_.Run(kernels::PackWorkCount(args),
            [args](int64_t begin, int64_t end, uint32_t) { kernels::Pack(args, {begin, end}); });
  matrices_.push_back(
      {.packed =
           {.type = source.type, .rows = source.rows, .columns = source.columns, .bytes = packed},
       .slice_count = kernels::SliceCountFor(source.type, source.columns, slice_count)});
  return MatrixId(static_cast<uint32_t>(matrices_.size() - 1));
}

VectorId CpuMemory::LoadVector(std::span<const float> values) {
  CpuVector vector{.pages = MapOrDie(values.size_bytes()),
                   .size = static_cast<uint32_t>(values.size())};
  std::memcpy(vector.pages.data<float>(), values.data(), values.size_bytes());
  weight_bytes_ += values.size_bytes();
  vectors_.push_back(std::move(vector));
  return VectorId(static_cast<uint32_t>(vectors_.size() - 1));
}

absl::StatusOr<EmbeddingId> CpuMemory::LoadEmbedding(const MatrixSource& source) {
  CHECK_GE(source.data.size(), source.rows * RowBytes(source.type, source.columns));
  embeddings_.push_back(source);
  return EmbeddingId(static_cast<uint32_t>(embeddings_.size() - 1));
}

RopeId CpuMemory::LoadRope(const RopeConfig& config, uint32_t max_position) {
  const size_t bytes = size_t{2} * max_position * (config.dimension_count / 2) * sizeof(float);
  CpuRope rope{.config = config, .max_position = max_position, .pages = MapOrDie(bytes)};
  const std::vector<float>& factors = config.frequency_factors;
  const kernels::RopeTableArgs args{
      .rope_dim = config.dimension_count,
      .max_position = max_position,
      .theta = config.frequency_base,
      .linear_scale = config.linear_factor,
      .factors = factors.empty() ? nullptr : factors.data(),
      .cosine = const_cast<float*>(rope.cosine()),
      .sine = const_cast<float*>(rope.sine()),
  };
  pool_.Run(kernels::RopeTableWorkCount(args), [args](int64_t begin, int64_t end, uint32_t) {
    kernels::RopeTable(args, {begin, end});
  });
  weight_bytes_ += bytes;
  ropes_.push_back(std::move(rope));
  return RopeId(static_cast<uint32_t>(ropes_.size() - 1));
}

ActivationId CpuMemory::CreateActivation(uint32_t columns, uint32_t max_rows) {
  activations_.push_back({.columns = columns,
                          .max_rows = max_rows,
                          .pages = MapOrDie(size_t{columns} * max_rows * sizeof(float)),
                          .formats = {},
                          .format_pages = {}});
  max_columns_ = std::max(max_columns_, columns);
  return ActivationId(static_cast<uint32_t>(activations_.size() - 1));
}

ActivationId CpuMemory::CreateProductInput(std::span<const MatrixId> consumers, uint32_t max_rows) {
  CHECK(!consumers.empty());
  CpuActivation activation{.columns = static_cast<uint32_t>(matrix(consumers[0]).packed.columns),
                           .max_rows = max_rows,
                           .pages = {},
                           .formats = {},
                           .format_pages = {}};
  for (MatrixId consumer : consumers) {
    CHECK_EQ(matrix(consumer).packed.columns, activation.columns);
    const kernels::ActivationFormat format =
        kernels::ActivationFormatFor(matrix(consumer).packed.type);
    const bool known =
        std::any_of(activation.formats.begin(), activation.formats.end(),
                    [&](const kernels::QuantizedRows& rows) { return rows.format == format; });
    if (known) continue;
    Pages pages = MapOrDie(kernels::QuantizedRowsBytes(format, max_rows, activation.columns));
    activation.formats.push_back(
        kernels::LayOutRows(format, pages.data<void>(), max_rows, activation.columns));
    activation.format_pages.push_back(std::move(pages));
  }
  max_columns_ = std::max(max_columns_, activation.columns);
  GrowStaging(activation.columns, max_rows);
  activations_.push_back(std::move(activation));
  return ActivationId(static_cast<uint32_t>(activations_.size() - 1));
}

void CpuMemory::GrowStaging(uint32_t columns, uint32_t max_rows) {
  const size_t bytes = size_t{columns} * max_rows * sizeof(float);
  if (bytes > staging_.size()) staging_ = MapOrDie(bytes);
}

absl::StatusOr<KvPoolId> CpuMemory::CreateKvPool(const KvLayout& layout, uint32_t block_count) {
  OCTAVO_RETURN_IF_ERROR(layout.Validate());
  OCTAVO_ASSIGN_OR_RETURN(Pages pages,
                          Pages::Map(layout.bytes_per_block() * block_count, /*huge=*/false));
  CpuKvPool pool{
      .layout = layout, .block_count = block_count, .pages = std::move(pages), .layer_bases = {}};
  for (uint32_t layer = 0; layer < layout.layer_count; ++layer) {
    uint8_t* base =
        pool.pages.data<uint8_t>() + layout.bytes_per_layer_block() * block_count * layer;
    pool.layer_bases.push_back(reinterpret_cast<uint16_t*>(base));
  }
  // A pool that is gone leaves its id to the next: a worker starts replicas for as long as it
  // lives.
  const auto free = std::find(kv_pools_.begin(), kv_pools_.end(), std::nullopt);
  const auto place = free == kv_pools_.end() ? kv_pools_.emplace(free) : free;
  *place = std::move(pool);
  return KvPoolId(static_cast<uint32_t>(place - kv_pools_.begin()));
}

void CpuMemory::DestroyKvPool(KvPoolId pool) {
  CHECK(kv_pools_.at(pool.value()).has_value());
  kv_pools_[pool.value()].reset();
}

BackendMemory CpuMemory::Memory() const {
  BackendMemory memory{.weight_bytes = weight_bytes_, .activation_bytes = staging_.size()};
  for (const MatrixSource& embedding : embeddings_) memory.file_bytes += embedding.data.size();
  for (const CpuActivation& activation : activations_) {
    memory.activation_bytes += activation.pages.size();
    for (const Pages& pages : activation.format_pages) memory.activation_bytes += pages.size();
  }
  for (const std::optional<CpuKvPool>& pool : kv_pools_) {
    if (pool.has_value()) memory.kv_bytes += pool->pages.size();
  }
  const MachineMemory machine = ReadMachineMemory();
  memory.available_bytes = machine.available_bytes;
  memory.total_bytes = machine.total_bytes;
  return memory;
}

}  // namespace octavo
