#include <unistd.h>

#include <iostream>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "tools/octavo/client.h"
#include "tools/octavo/commands.h"

ABSL_DECLARE_FLAG(std::string, system);

namespace octavo::cli {
namespace {

void AddMessage(v1::ChatPrompt& chat, const std::string& role, const std::string& content) {
  v1::ChatMessage& message = *chat.add_messages();
  message.set_role(role);
  message.set_content(content);
}

void Begin(v1::ChatPrompt& chat) {
  chat.clear_messages();
  if (!absl::GetFlag(FLAGS_system).empty()) AddMessage(chat, "system", absl::GetFlag(FLAGS_system));
}

}  // namespace

int Chat(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    std::cerr << "octavo: chat takes no arguments; type at its prompt, or use `octavo generate`\n";
    return 2;
  }
  const auto channel = DialServer();
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) std::cerr << "Type a message. /reset starts over, /exit or Ctrl-D leaves.\n";
  v1::GenerateRequest request = RequestFromFlags();
  v1::ChatPrompt& chat = *request.mutable_chat();
  Begin(chat);
  std::string line;
  while (true) {
    if (terminal) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/reset") {
      Begin(chat);
      continue;
    }
    AddMessage(chat, "user", line);
    const Answer answer = Stream(channel, request);
    if (answer.status.ok()) {
      AddMessage(chat, "assistant", answer.text);
      std::cerr << "[" << Summary(channel, answer) << "]\n";
      continue;
    }
    Report(answer.status);
    if (!terminal) return 1;
    // The turn did not happen: the next message takes its place.
    chat.mutable_messages()->RemoveLast();
  }
  return 0;
}

}  // namespace octavo::cli
