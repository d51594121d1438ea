// attention_bench [--threads=2] [--isa=avx2] [--heads=9/3] [--head_dim=64] [--block_size=16]
// [--megabytes=192]
//
// Times kernels/paged_attention.h: decode steps against the read bandwidth (bytes of K and V, over
// as many layers as fill --megabytes, so that they come from memory), prefill against the fp32 fma
// peak, both measured in the same run. Blocks are scattered over the pool.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "kernels/fp_env.h"
#include "kernels/half.h"
#include "kernels/paged_attention.h"
#include "tests/bench/machine_limits.h"

namespace octavo::kernels {
namespace {

struct Options {
  int threads = 2;
  Isa isa = DetectIsa();
  int64_t query_heads = 9;
  int64_t kv_heads = 3;
  int64_t head_dim = 64;
  int64_t block_size = 16;
  int64_t megabytes = 192;
};

constexpr int kRepeats = 7;

// `batch` sequences of `context` tokens, of which the last `new_tokens` are this step's rows.
class Step {
 public:
  Step(const Options& options, int64_t batch, int64_t context, int64_t new_tokens, int64_t layers)
      : options_(options), batch_(batch), context_(context) {
    const int64_t blocks = (context + options.block_size - 1) / options.block_size;
    pages_ = {nullptr, KvElement::kF16, options.block_size, options.kv_heads, options.head_dim};
    for (int64_t layer = 0; layer < layers; ++layer) {
      pools_.emplace_back(static_cast<size_t>(batch * blocks * pages_.block_stride()));
      for (size_t i = 0; i < pools_.back().size(); ++i) {
        pools_.back()[i] = F32ToF16(static_cast<float>(i % 31) * 0.05f - 0.7f);
      }
    }
    for (int64_t i = 0; i < batch * blocks; ++i) tables_.push_back(static_cast<uint32_t>(i));
    for (size_t i = tables_.size(); i > 1; --i) {
      std::swap(tables_[i - 1], tables_[RandomBits(1, i, 0) % i]);
    }
    for (int64_t sequence = 0; sequence < batch; ++sequence) {
      offsets_.push_back(sequence * blocks);
      for (int64_t p = context - new_tokens; p < context; ++p) {
        sequences_.push_back(static_cast<int32_t>(sequence));
        positions_.push_back(static_cast<int32_t>(p));
      }
    }
    const int64_t row_count = batch * new_tokens;
    q_.resize(static_cast<size_t>(row_count * options.query_heads * options.head_dim));
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = RandomUniform(2, i, 0) - 0.5f;
    out_.resize(q_.size());
    rows_ = {row_count, sequences_.data(), positions_.data(), tables_.data(), offsets_.data()};
    const AttentionShape shape{options.query_heads, options.kv_heads, options.head_dim,
                               options.threads};
    PlanPagedAttention(shape, rows_, &plan_);
    scratch_.resize(static_cast<size_t>(AttentionScratchFloats(shape, plan_)));
  }

  double KvBytes() const {
    return static_cast<double>(batch_ * context_ * 4 * options_.kv_heads * options_.head_dim) *
           static_cast<double>(pools_.size());
  }
  // Of both products, over the keys that each row sees; an fma is two operations.
  double Operations() const {
    double keys = 0;
    for (const int32_t position : positions_) keys += position + 1;
    return keys * 4 * static_cast<double>(options_.query_heads * options_.head_dim) *
           static_cast<double>(pools_.size());
  }

  // One pass over all layers.
  double Seconds() {
    std::vector<PagedAttentionArgs> layers;
    for (std::vector<uint16_t>& pool : pools_) {
      PagedAttentionArgs args{.q = q_.data(),
                              .q_stride = options_.query_heads * options_.head_dim,
                              .out = out_.data(),
                              .query_head_count = options_.query_heads,
                              .scale = 1.0f / std::sqrt(static_cast<float>(options_.head_dim)),
                              .rows = rows_,
                              .pages = pages_,
                              .items = plan_.items.data(),
                              .item_count = static_cast<int64_t>(plan_.items.size()),
                              .merges = plan_.merges.data(),
                              .merge_count = static_cast<int64_t>(plan_.merges.size()),
                              .scratch = scratch_.data()};
      args.pages.base = pool.data();
      layers.push_back(args);
    }
    const size_t queue_count = layers.size() * kRepeats;
    std::vector<std::atomic<int64_t>> queues(queue_count);
    std::vector<std::atomic<int>> arrived(queue_count);
    std::vector<size_t> turn(static_cast<size_t>(options_.threads), 0);
    const auto attend = PagedAttentionFor(options_.isa);
    const auto merge = MergeAttentionFor(options_.isa);
    return bench::BestSeconds(options_.threads, kRepeats, [&](int thread) {
      const FlushDenormals mode;
      for (const PagedAttentionArgs& args : layers) {
        const size_t queue = turn[static_cast<size_t>(thread)]++;
        const int64_t count = PagedAttentionWorkCount(args);
        for (int64_t i = queues[queue]++; i < count; i = queues[queue]++) attend(args, {i, i + 1});
        // All items of a layer are done before its merges, as in a step.
        ++arrived[queue];
        while (arrived[queue].load() < options_.threads) {
        }
        if (thread == 0) merge(args, {0, MergeAttentionWorkCount(args)});
      }
    });
  }

 private:
  const Options& options_;
  int64_t batch_;
  int64_t context_;
  KvPages pages_;
  std::vector<std::vector<uint16_t>> pools_;
  std::vector<uint32_t> tables_;
  std::vector<int64_t> offsets_;
  std::vector<int32_t> sequences_;
  std::vector<int32_t> positions_;
  std::vector<float> q_;
  std::vector<float> out_;
  KvRows rows_;
  AttentionPlan plan_;
  std::vector<float> scratch_;
};

void RunDecode(const Options& options) {
  const double bandwidth =
      bench::ReadBandwidth(static_cast<size_t>(options.megabytes) << 20, options.threads);
  std::printf("decode, read %.1f GB/s\n", bandwidth * 1e-9);
  for (const auto& [batch, context] :
       {std::pair{1, 256}, {1, 1024}, {1, 8192}, {8, 1024}, {32, 64}, {32, 1024}}) {
    const double layer_bytes = static_cast<double>(batch) * context * 4 *
                               static_cast<double>(options.kv_heads * options.head_dim);
    const int64_t layers = std::clamp<int64_t>(
        static_cast<int64_t>(static_cast<double>(options.megabytes << 20) / layer_bytes), 1, 256);
    Step step(options, batch, context, 1, layers);
    const double seconds = step.Seconds();
    std::printf("  batch %3d context %5d  %8.1f us a layer  %5.1f GB/s (%3.0f %% of read)\n", batch,
                context, seconds * 1e6 / static_cast<double>(layers),
                step.KvBytes() / seconds * 1e-9, 100 * step.KvBytes() / seconds / bandwidth);
    std::fflush(stdout);
  }
}

void RunPrefill(const Options& options) {
  const double peak = bench::FloatMultiplyPeak(options.threads);
  std::printf("prefill, fma peak %.0f GFLOP/s\n", peak * 1e-9);
  for (const auto& [rows, context] : {std::pair{512, 512}, {512, 8192}, {64, 1024}, {16, 1024}}) {
    Step step(options, 1, context, rows, 1);
    const double seconds = step.Seconds();
    std::printf("  rows %4d context %5d  %8.1f us a layer  %5.1f GFLOP/s (%3.0f %% of peak)\n",
                rows, context, seconds * 1e6, step.Operations() / seconds * 1e-9,
                peak > 0 ? 100 * step.Operations() / seconds / peak : 0.0);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = std::min(arg.find('='), arg.size());
    const std::string name = arg.substr(0, equals);
    const std::string value = equals < arg.size() ? arg.substr(equals + 1) : "";
    if (name == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else if (name == "--isa") {
      for (const Isa isa : SupportedIsas()) {
        if (value == IsaName(isa)) options.isa = isa;
      }
    } else if (name == "--heads") {
      options.query_heads = std::atoll(value.c_str());
      options.kv_heads = std::atoll(value.substr(value.find('/') + 1).c_str());
    } else if (name == "--head_dim") {
      options.head_dim = std::atoll(value.c_str());
    } else if (name == "--block_size") {
      options.block_size = std::atoll(value.c_str());
    } else if (name == "--megabytes") {
      options.megabytes = std::atoll(value.c_str());
    } else {
      std::fprintf(stderr, "unknown option %s; see the head of attention_bench.cc\n", arg.c_str());
      return 2;
    }
  }
  std::printf("%s, %d threads, heads %ld/%ld x %ld, blocks of %ld\n", IsaName(options.isa),
              options.threads, options.query_heads, options.kv_heads, options.head_dim,
              options.block_size);
  RunDecode(options);
  RunPrefill(options);
  return 0;
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) { return octavo::kernels::Main(argc, argv); }
