#include <iostream>
#include <iterator>

#include "absl/flags/flag.h"
#include "absl/strings/str_join.h"
#include "tools/octavo/client.h"
#include "tools/octavo/commands.h"

ABSL_FLAG(bool, raw, false, "Continue the prompt as it is, without the model's chat template.");
ABSL_FLAG(std::string, system, "", "System message of the chat; empty: the template's own.");
ABSL_FLAG(bool, stats, true, "Print tokens, speed, cached tokens and blocks on stderr at the end.");

namespace octavo::cli {

int Generate(const std::vector<std::string>& arguments) {
  const std::string prompt = arguments.empty()
                                 ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                 : absl::StrJoin(arguments, " ");
  v1::GenerateRequest request = RequestFromFlags();
  if (absl::GetFlag(FLAGS_raw)) {
    request.set_text(prompt);
  } else {
    if (!absl::GetFlag(FLAGS_system).empty()) {
      v1::ChatMessage& message = *request.mutable_chat()->add_messages();
      message.set_role("system");
      message.set_content(absl::GetFlag(FLAGS_system));
    }
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content(prompt);
  }
  const auto channel = DialServer();
  const Answer answer = Stream(channel, request);
  std::cout << "\n" << std::flush;
  if (!answer.status.ok()) return Report(answer.status);
  if (absl::GetFlag(FLAGS_stats)) std::cerr << "[" << Summary(channel, answer) << "]\n";
  return 0;
}

}  // namespace octavo::cli
