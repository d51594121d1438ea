#include "scheduler/rpc/generation_service.h"

#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/model/detokenizer.h"
#include "glog/logging.h"
#include "scheduler/rpc/loop_call.h"
#include "scheduler/rpc/token_stream.h"

namespace octavo {
namespace {

// 64 bits from the thread's own generator: seeds and names of requests need no secrecy, only to
// differ.
uint64_t RandomBits() {
  thread_local absl::BitGen generator;
  return absl::Uniform<uint64_t>(generator);
}

// A call that never reaches the loop.
class RefusedCall final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  explicit RefusedCall(const absl::Status& status) { Finish(ClientStatus(status)); }
  void OnDone() override { delete this; }
};

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

}  // namespace

GenerationService::GenerationService(GenerationServiceOptions options, const ServedModel* model,
                                     Loop* loop)
    : options_(options), model_(model), loop_(loop) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  absl::StatusOr<Submission> submission =
      ParseGenerate(*request, *model_, options_.limits, RandomBits());
  if (!submission.ok()) return new RefusedCall(submission.status());
  SubmitRequest& engine_request = submission->request;
  engine_request.request_id = loop_->NewRequestId();
  engine_request.deadline = DeadlineOf(*context);
  if (engine_request.client_request_id.empty()) {
    engine_request.client_request_id =
        absl::StrCat("octavo-", absl::Hex(RandomBits(), absl::kZeroPad16));
  }
  if (options_.log_prompts) {
    LOG(INFO) << "request " << engine_request.client_request_id << " prompt: "
              << (request->has_text() ? request->text() : request->ShortDebugString());
  }
  StreamLabels labels{.client_request_id = engine_request.client_request_id,
                      .log_text = options_.log_prompts};
  if (!engine_request.beams) labels.seed = engine_request.seed;
  const std::shared_ptr<TokenStream> stream =
      TokenStream::Create(context, loop_, engine_request.request_id, std::move(labels));
  submission->sink = stream;
  const absl::Status accepted = loop_->Submit(*std::move(submission));
  if (!accepted.ok()) {
    StreamEnd end;
    end.status = accepted;
    stream->End(std::move(end));
  }
  return stream.get();
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  absl::StatusOr<TokenizedPrompt> prompt = ParseTokenize(*request, *model_);
  if (!prompt.ok()) return AnswerNow(context, prompt.status());
  response->mutable_token_ids()->Add(prompt->token_ids.begin(), prompt->token_ids.end());
  if (request->has_chat()) response->set_rendered(std::move(prompt->text));
  return AnswerNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  const absl::StatusOr<std::vector<TokenId>> ids = ParseDetokenize(*request, *model_);
  if (!ids.ok()) return AnswerNow(context, ids.status());
  Detokenizer detokenizer(model_->tokenizer.get(),
                          {.show_control = request->show_control_tokens()});
  std::string& text = *response->mutable_text();
  for (const TokenId id : *ids) text += detokenizer.Append(id);
  text += detokenizer.Finish();
  return AnswerNow(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* GenerationService::GetModel(grpc::CallbackServerContext* context,
                                                      const v1::GetModelRequest* request,
                                                      v1::GetModelResponse* response) {
  const absl::Status known = CheckModelName(request->model(), *model_);
  if (!known.ok()) return AnswerNow(context, known);
  response->set_model(model_->name);
  response->set_architecture(model_->config.architecture);
  response->set_context_length(loop_->options().engine.context_length);
  response->set_vocabulary_size(model_->config.vocab_size);
  const auto ends = model_->tokenizer->end_of_generation_ids();
  response->mutable_end_token_ids()->Add(ends.begin(), ends.end());
  response->set_has_chat_template(model_->chat_template != nullptr);
  response->set_version(OCTAVO_VERSION);
  return AnswerOnLoop(context, loop_, [this, response] {
    response->set_block_size(loop_->fleet().options().layout.block_size);
    response->set_block_count(loop_->fleet().ready() ? loop_->fleet().block_count() : 0);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* GenerationService::Abort(grpc::CallbackServerContext* context,
                                                   const v1::AbortRequest* request,
                                                   v1::AbortResponse* response) {
  absl::StatusOr<std::vector<std::string>> names = ParseAbort(*request);
  if (!names.ok()) return AnswerNow(context, names.status());
  return AnswerOnLoop(context, loop_, [this, names = *std::move(names), response] {
    response->set_aborted_count(loop_->AbortByName(names));
    return absl::OkStatus();
  });
}

}  // namespace octavo
