#include "tests/bench/recorded_workload.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/flags.h"

ABSL_FLAG(std::string, trace, "", "The recorded workload.");
ABSL_FLAG(std::string, name, "workload", "What it is called in the output and in the log.");
ABSL_FLAG(std::string, log, "", "Append the figures to this file as a JSON line.");

namespace octavo {
namespace {

absl::StatusOr<CommandLine> ReadCommandLine(int argc, char** argv) {
  absl::StatusOr<CommandLine> line = ParseFlags(argc, argv);
  if (!line.ok() || line->positional.empty()) return line;
  return absl::InvalidArgumentError(
      absl::StrCat("takes flags only; got \"", line->positional[0], "\""));
}

}  // namespace

int RunBenchmark(int argc, char** argv, const char* about,
                 absl::FunctionRef<absl::StatusOr<bool>()> run) {
  const auto fail = [&](const absl::Status& status) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(status.message()).c_str());
    return kExitBadConfiguration;
  };
  const absl::StatusOr<CommandLine> line = ReadCommandLine(argc, argv);
  if (!line.ok()) return fail(line.status());
  if (line->help) {
    std::fputs(FlagsHelp(about, {"tests/bench/"}).c_str(), stdout);
    return kExitOk;
  }
  const absl::StatusOr<bool> holds = run();
  if (!holds.ok()) return fail(holds.status());
  return *holds ? 0 : 1;
}

void AppendToLog(const nlohmann::json& line) {
  const std::string path = absl::GetFlag(FLAGS_log);
  if (!path.empty()) std::ofstream(path, std::ios::app) << line << "\n";
}

}  // namespace octavo
