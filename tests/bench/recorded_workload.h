#pragma once

// What the benchmarks over recorded workloads have in common: how they are called, where their
// workload is, where their figures go.
//
//   --trace FILE   the workload, in a form of tools/octavo/trace_file.h
//   --name NAME    what it is called in the output and in the log
//   --log FILE     append the figures as a JSON line

#include <string>

#include "absl/flags/declare.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

ABSL_DECLARE_FLAG(std::string, trace);
ABSL_DECLARE_FLAG(std::string, name);

namespace octavo {

// The main() of a benchmark: parses the command line and calls `run`, which says whether the
// figures are what they must be. Returns the exit code: 0 they are, 1 they are not, 2 the command
// line or the workload is wrong, which was said on stderr.
int RunBenchmark(int argc, char** argv, const char* about,
                 absl::FunctionRef<absl::StatusOr<bool>()> run);

// Without --log: does nothing.
void AppendToLog(const nlohmann::json& line);

}  // namespace octavo
