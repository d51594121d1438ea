#include "scheduler/runtime/served_model.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/gguf.h"
#include "common/model/tokenizer_from_gguf.h"
#include "common/status.h"

namespace octavo {
namespace {

std::string NameFromPath(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

// The token as the chat template writes it; empty without one.
std::string Spelling(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  return token ? std::string(tokenizer.TokenBytes(*token)) : std::string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> LoadServedModel(const std::string& path,
                                                             const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  auto model = std::make_unique<ServedModel>();
  model->name = name.empty() ? NameFromPath(path) : name;
  OCTAVO_ASSIGN_OR_RETURN(model->config, ReadModelConfig(*file));
  model->fingerprint = file->Fingerprint();
  OCTAVO_ASSIGN_OR_RETURN(const TokenizerSpec spec, TokenizerSpecFromGguf(*file));
  OCTAVO_ASSIGN_OR_RETURN(model->tokenizer, Tokenizer::Create(spec));
  if (model->tokenizer->vocab_size() != model->config.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the tokenizer has ", model->tokenizer->vocab_size(),
                     " tokens, the model ", model->config.vocab_size));
  }
  if (file->Has("tokenizer.chat_template")) {
    OCTAVO_ASSIGN_OR_RETURN(const absl::string_view source,
                            file->GetString("tokenizer.chat_template"));
    auto chat_template =
        ChatTemplate::Parse(source, Spelling(*model->tokenizer, model->tokenizer->bos_id()),
                            Spelling(*model->tokenizer, model->tokenizer->eos_id()));
    if (chat_template.ok()) {
      model->chat_template = *std::move(chat_template);
    } else {
      model->chat_template_problem = std::string(chat_template.status().message());
    }
  }
  return model;
}

}  // namespace octavo
