#pragma once

// The model as the scheduler needs it: configuration, vocabulary and chat template, never weights.
// In: a model file. Out: one immutable value that all threads share.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/chat_template.h"
#include "common/model/model_config.h"
#include "common/model/tokenizer.h"

namespace octavo {

struct ServedModel {
  std::string name;  // what requests call it
  ModelConfig config;
  uint64_t fingerprint = 0;  // of the file
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;  // null: the file has none
  std::string chat_template_problem;  // why the file's template cannot be used; empty when there is
                                      // none or it can
};

// Reads the header of the GGUF file at `path`. `name` empty: the file's name without its ending. A
// template that cannot be used does not stop the model from being served; anything else that is
// wrong does, with path and reason.
absl::StatusOr<std::unique_ptr<ServedModel>> LoadServedModel(const std::string& path,
                                                             const std::string& name);

}  // namespace octavo
