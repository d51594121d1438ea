#include <iostream>
#include <iterator>

#include "absl/flags/flag.h"
#include "absl/strings/str_join.h"
#include "tools/octavo/client.h"
#include "tools/octavo/commands.h"

ABSL_FLAG(bool, raw, false, "Continue the prompt as it is, without the model's chat template.");
ABSL_FLAG(std::string, system, "", "System message of the chat; empty: the template's own.");
ABSL_FLAG(uint32_t, n, 1,
          "Samples of the answer, or with beams hypotheses to show; 1 to 64. Each is printed whole "
          "when it ends.");
ABSL_FLAG(uint32_t, beam_width, 1, "Beam width, 1 to 32; above 1 it is a beam search.");
ABSL_FLAG(float, length_penalty, 1,
          "Of a beam search: a hypothesis scores the sum of its log-probabilities over its length "
          "to this power; -10 to 10.");
ABSL_FLAG(std::string, early_stopping, "heuristic",
          "Of a beam search: when it ends, once it has --beam_width hypotheses: always (at once), "
          "heuristic (the best beam would not beat them if it ended now) or never (no beam can "
          "beat them any more).");
ABSL_FLAG(bool, no_cache, false,
          "Compute the whole prompt, whatever is cached, and leave nothing in the cache.");
ABSL_FLAG(bool, stats, true, "Print tokens, speed, cached tokens and blocks on stderr at the end.");

namespace octavo::cli {
namespace {

// The flags of samples, beams and the cache; those at their defaults are left to the server. False,
// with the error told, for an unknown --early_stopping.
bool AddRequestFlags(v1::GenerateRequest& request) {
  request.set_n(absl::GetFlag(FLAGS_n));
  request.set_beam_width(absl::GetFlag(FLAGS_beam_width));
  request.set_no_cache(absl::GetFlag(FLAGS_no_cache));
  if (absl::GetFlag(FLAGS_length_penalty) != 1)
    request.set_length_penalty(absl::GetFlag(FLAGS_length_penalty));
  const std::string early_stopping = absl::GetFlag(FLAGS_early_stopping);
  if (early_stopping == "always") {
    request.set_early_stopping(v1::EARLY_STOPPING_ALWAYS);
  } else if (early_stopping == "never") {
    request.set_early_stopping(v1::EARLY_STOPPING_NEVER);
  } else if (early_stopping != "heuristic") {
    std::cerr << "octavo: --early_stopping is \"" << early_stopping
              << "\"; it must be heuristic, always or never\n";
    return false;
  }
  if (request.n() > 1 && request.beam_width() <= 1 && request.sampling().temperature() == 0) {
    std::cerr << "octavo: at --temperature 0 all samples are the same; try --temperature 0.8\n";
  }
  return true;
}

}  // namespace

int Generate(const std::vector<std::string>& arguments) {
  const std::string prompt = arguments.empty()
                                 ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                 : absl::StrJoin(arguments, " ");
  v1::GenerateRequest request = RequestFromFlags();
  if (!AddRequestFlags(request)) return 2;
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
  if (!answer.status.ok()) return Report(answer.status);
  if (absl::GetFlag(FLAGS_stats)) std::cerr << "[" << Summary(channel, answer) << "]\n";
  return 0;
}

}  // namespace octavo::cli
