// octavo: the command-line tool. `octavo serve` runs scheduler and worker; the other commands are
// clients.

#include <signal.h>

#include <iostream>

#include "common/flags.h"
#include "glog/logging.h"
#include "tools/octavo/commands.h"

namespace octavo::cli {
namespace {

constexpr char kAbout[] =
    "octavo: serve a language model from a paged KV cache, and talk to it.\n"
    "\n"
    "  octavo serve [--model FILE] [-- SCHEDULER FLAGS]   start scheduler and worker, restart what "
    "dies\n"
    "  octavo generate [PROMPT]                           stream one answer (prompt from stdin "
    "without one)\n"
    "  octavo chat                                        talk over several turns\n"
    "  octavo top                                         watch queue, pool and speed\n";

struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>&);
};
constexpr Command kCommands[] = {
    {"serve", Serve}, {"generate", Generate}, {"chat", Chat}, {"top", Top}};

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> command_line = ParseFlags(argc, argv);
  if (!command_line.ok()) {
    std::cerr << "octavo: " << command_line.status().message() << "\n";
    return kExitBadConfiguration;
  }
  if (command_line->version) {
    std::cout << "octavo " << OCTAVO_VERSION << "\n";
    return kExitOk;
  }
  std::vector<std::string> arguments = command_line->positional;
  if (command_line->help || arguments.empty()) {
    std::cout << FlagsHelp(kAbout, "tools/octavo/");
    return command_line->help ? kExitOk : kExitBadConfiguration;
  }
  const std::string name = arguments[0];
  arguments.erase(arguments.begin());
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(arguments);
  }
  std::cerr << "octavo: there is no command \"" << name << "\"; the commands are";
  for (const Command& command : kCommands) std::cerr << " " << command.name;
  std::cerr << "\n";
  return kExitBadConfiguration;
}

}  // namespace
}  // namespace octavo::cli

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  return octavo::cli::Main(argc, argv);
}
