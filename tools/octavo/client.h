#pragma once

// What the client commands share: a connection to the scheduler, one streamed answer, and how an
// error is told to a person.
//
// Thread rule: one thread, except that Interrupt may be called from a signal handler's thread.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/channel.h"
#include "octavo/v1/generation_service.pb.h"

namespace octavo::cli {

// A channel to --server.
std::shared_ptr<grpc::Channel> DialServer();

// "octavo: UNAVAILABLE: …" and what to do next, on stderr. Returns the exit code 1.
int Report(const absl::Status& status);

// The sampling flags (--temperature, --top_p, --seed, …) and --max_tokens, as a request without a
// prompt.
v1::GenerateRequest RequestFromFlags();

struct Answer {
  absl::Status status;
  std::string text;
  std::string request_id;
  v1::Usage usage;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  double first_token_seconds = 0;  // from the call to the first token
  double total_seconds = 0;
};

// Sends `request` and prints the answer to stdout as it comes (answer_printer.h). Ctrl-C cancels
// the request and ends the answer with CANCELLED.
Answer Stream(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerateRequest& request);

// "41 tokens, 62.1 tok/s, first after 0.21 s; prompt 37 tokens, 0 cached; 5 blocks of 16 tokens".
std::string Summary(const std::shared_ptr<grpc::Channel>& channel, const Answer& answer);

}  // namespace octavo::cli
