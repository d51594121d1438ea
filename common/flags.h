#pragma once

// Command lines for all binaries, over Abseil flags. absl::ParseCommandLine exits with 1 on a bad
// flag, which a supervisor cannot tell from a crash; here a bad command line is a Status and main()
// chooses the exit code (2 everywhere in Octavo).
//
// Accepted: --name=value, --name value, --bool, --nobool, and `--` before positional arguments. One
// dash works like two.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo {

constexpr int kExitOk = 0;
constexpr int kExitBadConfiguration = 2;

struct CommandLine {
  std::vector<std::string> positional;
  bool help = false;     // --help
  bool version = false;  // --version
};

// Sets Abseil flags from argv. InvalidArgument naming the flag: unknown, value missing or
// malformed.
absl::StatusOr<CommandLine> ParseFlags(int argc, const char* const* argv);

// `about`, then every flag defined in a source file whose path contains `folder` ("scheduler/"),
// with help and default.
std::string FlagsHelp(const std::string& about, const std::string& folder);

}  // namespace octavo
