#include "tools/octavo/client.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"
#include "common/wire/rpc_server.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "octavo/v1/admin_service.grpc.pb.h"
#include "octavo/v1/generation_service.grpc.pb.h"
#include "tools/octavo/answer_printer.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7000",
          "Where the scheduler listens: host:port or unix:/path.");
ABSL_FLAG(float, temperature, 0, "Sampling temperature; 0 always takes the most likely token.");
ABSL_FLAG(float, top_p, 1, "Keep the most likely tokens up to this probability.");
ABSL_FLAG(uint32_t, top_k, 0, "Keep this many most likely tokens; 0 is off.");
ABSL_FLAG(uint64_t, seed, 0, "Seed of the draws; 0 lets the server draw one.");
ABSL_FLAG(uint32_t, max_tokens, 0, "Most tokens to generate; 0: what the model's length leaves.");
ABSL_FLAG(absl::Duration, timeout, absl::InfiniteDuration(), "Deadline of a request.");

namespace octavo::cli {
namespace {

using Seconds = std::chrono::duration<double>;

// Cancels `context` when SIGINT comes while it lives. SIGINT is blocked in every thread but its own
// sigwait.
class CancelOnInterrupt {
 public:
  explicit CancelOnInterrupt(grpc::ClientContext& context) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGUSR1);  // ends the wait
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    thread_ = std::thread([this, &context] {
      int signal_number = 0;
      sigwait(&signals_, &signal_number);
      if (signal_number == SIGINT) context.TryCancel();
    });
  }
  ~CancelOnInterrupt() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signals_, before_;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<grpc::Channel> DialServer() {
  return grpc::CreateCustomChannel(absl::GetFlag(FLAGS_server), grpc::InsecureChannelCredentials(),
                                   wire::PeerChannelArguments());
}

int Report(const absl::Status& status) {
  std::cerr << "octavo: " << absl::StatusCodeToString(status.code()) << ": " << status.message()
            << "\n";
  if (const absl::Duration delay = RetryDelay(status); delay > absl::ZeroDuration()) {
    std::cerr << "Try again in " << absl::FormatDuration(delay) << ".\n";
  } else if (status.code() == absl::StatusCode::kUnavailable) {
    std::cerr << "Is a server running at " << absl::GetFlag(FLAGS_server)
              << "? Start one with `octavo serve`, or name another with --server.\n";
  }
  return 1;
}

v1::GenerateRequest RequestFromFlags() {
  v1::GenerateRequest request;
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(absl::GetFlag(FLAGS_temperature));
  sampling.set_top_p(absl::GetFlag(FLAGS_top_p));
  sampling.set_top_k(absl::GetFlag(FLAGS_top_k));
  if (absl::GetFlag(FLAGS_seed) != 0) sampling.set_seed(absl::GetFlag(FLAGS_seed));
  if (absl::GetFlag(FLAGS_max_tokens) != 0) {
    request.set_max_tokens(absl::GetFlag(FLAGS_max_tokens));
  }
  return request;
}

Answer Stream(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerateRequest& request) {
  const auto stub = v1::GenerationService::NewStub(channel);
  grpc::ClientContext context;
  if (absl::GetFlag(FLAGS_timeout) != absl::InfiniteDuration()) {
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoNanoseconds(absl::GetFlag(FLAGS_timeout)));
  }
  const CancelOnInterrupt interrupt(context);
  Answer answer;
  const auto start = std::chrono::steady_clock::now();
  const auto reader = stub->Generate(&context, request);
  AnswerPrinter printer(request, &std::cout, isatty(STDERR_FILENO) != 0 ? &std::cerr : nullptr);
  v1::GenerateResponse chunk;
  while (reader->Read(&chunk)) {
    if (answer.usage.completion_tokens() == 0 && chunk.usage().completion_tokens() > 0) {
      answer.first_token_seconds = Seconds(std::chrono::steady_clock::now() - start).count();
    }
    printer.Take(chunk);
    answer.text += chunk.text();
    answer.request_id = chunk.request_id();
    answer.usage = chunk.usage();
    answer.finish_reason = chunk.finish_reason();
  }
  answer.status = wire::FromGrpc(reader->Finish());
  printer.Finish();
  answer.total_seconds = Seconds(std::chrono::steady_clock::now() - start).count();
  return answer;
}

std::string Summary(const std::shared_ptr<grpc::Channel>& channel, const Answer& answer) {
  const uint32_t tokens = answer.usage.completion_tokens();
  const double decode_seconds = answer.total_seconds - answer.first_token_seconds;
  std::string summary =
      absl::StrFormat("%u tokens, first after %.2f s", tokens, answer.first_token_seconds);
  if (tokens > 1 && decode_seconds > 0) {
    absl::StrAppendFormat(&summary, ", then %.1f tok/s", (tokens - 1) / decode_seconds);
  }
  absl::StrAppendFormat(&summary, "; prompt %u tokens, %u of them cached",
                        answer.usage.prompt_tokens(), answer.usage.cached_tokens());
  // The request has ended, so its blocks are what the scheduler still remembers of it.
  v1::GetRequestRequest request;
  request.set_request_id(answer.request_id);
  v1::GetRequestResponse response;
  grpc::ClientContext context;
  const auto admin = v1::AdminService::NewStub(channel);
  if (admin->GetRequest(&context, request, &response).ok()) {
    absl::StrAppendFormat(&summary, "; %u KV blocks%s", response.request().blocks(),
                          response.request().sequences_size() > 1 ? " in all block tables" : "");
  }
  return summary;
}

}  // namespace octavo::cli
