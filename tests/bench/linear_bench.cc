// linear_bench [--threads=2] [--megabytes=84] [--columns=576] [--repeats=7] [--type=Q4_1]
// [--isa=avx2] [--rows=1,8,32]
//
// Times the matrix products of kernels/linear.h on one tall matrix of about the default model's
// size, and prints for each batch how near it comes to the read bandwidth (bytes of packed weights)
// and to the int16 multiply peak, both measured in the same run.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/fp_env.h"
#include "kernels/linear.h"
#include "tests/bench/machine_limits.h"
#include "tests/unit/kernels/linear_fixtures.h"

namespace octavo::kernels {
namespace {

struct Options {
  int threads = 2;
  int64_t megabytes = 84;
  int64_t columns = 576;
  int repeats = 7;
  std::string type;  // empty: all
  Isa isa = DetectIsa();
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 512};
};

// Gives a thread its next few work items until none are left.
class ItemQueue {
 public:
  explicit ItemQueue(int64_t count) : count_(count) {}
  void Reset() { next_ = 0; }
  bool Take(WorkRange* range) {
    const int64_t size = std::max<int64_t>(1, count_ / 256);
    range->begin = next_.fetch_add(size);
    range->end = std::min(range->begin + size, count_);
    return range->begin < count_;
  }

 private:
  const int64_t count_;
  std::atomic<int64_t> next_{0};
};

double SecondsOf(const LinearArgs& args, const Options& options) {
  const int64_t count = LinearWorkCount(args);
  std::vector<std::unique_ptr<ItemQueue>> queues;
  const int repeats = options.repeats;
  for (int i = 0; i < repeats; ++i) queues.push_back(std::make_unique<ItemQueue>(count));
  std::vector<int> turn(static_cast<size_t>(options.threads), 0);
  const auto function = LinearFor(options.isa);
  return bench::BestSeconds(options.threads, repeats, [&](int thread) {
    const FlushDenormals mode;
    ItemQueue& queue = *queues[static_cast<size_t>(turn[static_cast<size_t>(thread)]++)];
    WorkRange range;
    while (queue.Take(&range)) function(args, range);
  });
}

void RunType(TensorType type, const Options& options, double peak) {
  const int64_t columns = options.columns / PackUnit(type) * PackUnit(type);
  const int64_t outputs =
      (options.megabytes << 20) / static_cast<int64_t>(PanelBytes(type, columns)) * kPanelWidth;
  std::mt19937_64 rng(1);
  // A few random rows, repeated: the values do not matter to the time.
  const std::vector<uint8_t> some = RandomTensor(type, 16, columns, Spread::kTypical, rng);
  AlignedBytes packed(PackedBytes(type, outputs, columns));
  const PackArgs pack{.type = type,
                      .source = some.data(),
                      .source_stride = static_cast<int64_t>(some.size() / 16),
                      .rows = 16,
                      .columns = columns,
                      .packed = packed.data()};
  Pack(pack, {0, 1});
  const size_t panel_bytes = PanelBytes(type, columns);
  for (size_t at = panel_bytes; at < packed.size(); at += panel_bytes) {
    std::memcpy(packed.data() + at, packed.data(), panel_bytes);
  }
  const double bandwidth = bench::ReadBandwidth(packed.size(), options.threads);
  std::printf("%-5s K %4ld  read %5.1f GB/s  peak %4.0f GOP/s\n", TraitsOf(type).name, columns,
              bandwidth * 1e-9, peak * 1e-9);
  for (int64_t rows : options.rows) {
    // Large batches go over fewer outputs, so that a run stays short.
    const int64_t used = rows <= 32 ? outputs : std::min<int64_t>(outputs, 49152);
    const PreparedRows x(ActivationFormatFor(type),
                         RandomRows(rows, columns, Spread::kTypical, rng), rows, columns);
    std::vector<float> output(static_cast<size_t>(rows * used));
    const LinearArgs args{
        .weights = {.type = type, .rows = used, .columns = columns, .bytes = packed.data()},
        .activations = x.rows,
        .output = output.data(),
        .output_stride = used};
    const double seconds = SecondsOf(args, options);
    const double bytes = static_cast<double>(PackedBytes(type, used, columns));
    const double operations = 2.0 * static_cast<double>(used * columns * rows);
    std::printf(
        "  rows %4ld  %8.3f ms  %5.1f GB/s (%3.0f %% of read)  %4.0f GOP/s (%3.0f %% of peak)\n",
        rows, seconds * 1e3, bytes / seconds * 1e-9, 100 * bytes / seconds / bandwidth,
        operations / seconds * 1e-9, peak > 0 ? 100 * operations / seconds / peak : 0.0);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : arg.substr(equals + 1);
    if (name == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else if (name == "--megabytes") {
      options.megabytes = std::atoll(value.c_str());
    } else if (name == "--columns") {
      options.columns = std::atoll(value.c_str());
    } else if (name == "--repeats") {
      options.repeats = std::atoi(value.c_str());
    } else if (name == "--type") {
      options.type = value;
    } else if (name == "--isa") {
      for (Isa isa : SupportedIsas()) {
        if (value == IsaName(isa)) options.isa = isa;
      }
    } else if (name == "--rows") {
      options.rows.clear();
      std::istringstream list(value);
      for (std::string one; std::getline(list, one, ',');) {
        options.rows.push_back(std::atoll(one.c_str()));
      }
    } else {
      std::fprintf(stderr, "unknown option %s; see the head of linear_bench.cc\n", arg.c_str());
      return 2;
    }
  }
  std::printf("%s, %d threads\n", IsaName(options.isa), options.threads);
  const double peak = bench::Int16MultiplyPeak(options.threads);
  for (TensorType type : kAllTypes) {
    if (options.type.empty() || options.type == TraitsOf(type).name) RunType(type, options, peak);
  }
  return 0;
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) { return octavo::kernels::Main(argc, argv); }
