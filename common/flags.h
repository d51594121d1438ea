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
  std::vector<std::string> flags;  // names of the flags that were set, in order
  bool help = false;               // --help
  bool version = false;            // --version
};

// Sets Abseil flags from argv. InvalidArgument naming the flag: unknown, value missing or
// malformed.
absl::StatusOr<CommandLine> ParseFlags(int argc, const char* const* argv);

// True where `origins` names the flag: by the flag itself ("--model") or by a part of the path of
// the source file that defines it ("scheduler/").
bool IsFlagOf(const std::string& name, const std::vector<std::string>& origins);

// `about`, then every flag of `origins`, with help and default.
std::string FlagsHelp(const std::string& about, const std::vector<std::string>& origins);

}  // namespace octavo
