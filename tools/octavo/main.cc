// octavo: the command-line tool. `octavo serve` runs scheduler and worker; the other commands are
// clients.

#include <signal.h>

#include <iostream>

#include "common/flags.h"
#include "glog/logging.h"
#include "tools/octavo/capacity/capacity.h"
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
    "  octavo top                                         watch queue, pool and speed; --pool: its "
    "blocks\n"
    "  octavo capacity                                    what a KV pool would hold, offline\n"
    "\n"
    "`octavo COMMAND --help` lists the flags of one.\n";

struct Command {
  const char* name;
  const char* about;
  int (*run)(const std::vector<std::string>&);
  std::vector<std::string> flags_of;  // what IsFlagOf takes
};

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"serve",
       "octavo serve [--model FILE] [-- SCHEDULER FLAGS]: start scheduler and worker.",
       Serve,
       {"octavo/serve.cc"}},
      {"generate",
       "octavo generate [PROMPT]: stream one answer.",
       Generate,
       {"octavo/client.cc", "octavo/generate.cc"}},
      {"chat", "octavo chat: talk over several turns.", Chat, {"octavo/client.cc", "--system"}},
      {"top", "octavo top: watch queue, pool and speed.", Top, {"--server", "octavo/top.cc"}},
      {"capacity", kCapacityAbout, ShowCapacity, {"octavo/capacity/", "--model"}}};
  return commands;
}

// What a flag that `command` does not take belongs to.
std::string Misplaced(const std::string& flag, const Command& command) {
  std::string owners;
  for (const Command& other : Commands()) {
    if (IsFlagOf(flag, other.flags_of))
      owners += (owners.empty() ? "" : " and ") + ("octavo " + std::string(other.name));
  }
  return "octavo " + std::string(command.name) + " does not take --" + flag +
         (owners.empty() ? "" : ", which is a flag of " + owners) +
         (command.run == Serve ? "; flags of the scheduler go after --" : "");
}

int Run(const Command& command, const CommandLine& line) {
  if (line.help) {
    std::cout << FlagsHelp(command.about, command.flags_of);
    return kExitOk;
  }
  for (const std::string& flag : line.flags) {
    if (IsFlagOf(flag, command.flags_of)) continue;
    std::cerr << Misplaced(flag, command) << "\n";
    return kExitBadConfiguration;
  }
  return command.run({line.positional.begin() + 1, line.positional.end()});
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseFlags(argc, argv);
  if (!line.ok()) {
    std::cerr << "octavo: " << line.status().message() << "\n";
    return kExitBadConfiguration;
  }
  if (line->version) {
    std::cout << "octavo " << OCTAVO_VERSION << "\n";
    return kExitOk;
  }
  if (line->positional.empty()) {
    std::cout << FlagsHelp(kAbout, {"tools/octavo/"});
    return line->help ? kExitOk : kExitBadConfiguration;
  }
  const std::string& name = line->positional[0];
  for (const Command& command : Commands()) {
    if (name == command.name) return Run(command, *line);
  }
  std::cerr << "octavo: there is no command \"" << name << "\"; the commands are";
  for (const Command& command : Commands()) std::cerr << " " << command.name;
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
