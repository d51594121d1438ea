#pragma once

// What the machine can do, measured in the run that compares against it: the two floors of a matrix
// product on quantised weights. Both start their own threads and take the best of several short
// runs. Linked into benchmarks only.

#include <cstddef>
#include <functional>

namespace octavo::bench {

// Runs body(0) .. body(threads - 1) at the same time, `repeats` times, and returns the shortest
// wall time in seconds. The threads are started once and released together each time.
double BestSeconds(int threads, int repeats, const std::function<void(int thread)>& body);

// Bytes a second read from a buffer of `bytes`, by `threads` threads a part each.
double ReadBandwidth(size_t bytes, int threads);

// Operations a second (a multiplication or an addition is one) of vpmaddwd + vpaddd on registers
// alone. 0 without AVX2.
double Int16MultiplyPeak(int threads);

// The same of fp32 fused multiply-additions, two operations each. 0 without AVX2.
double FloatMultiplyPeak(int threads);

}  // namespace octavo::bench
