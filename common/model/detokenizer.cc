#include "common/model/detokenizer.h"

#include <glog/logging.h>

#include <utility>

#include "common/model/utf8.h"

namespace octavo {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(options) {}

std::string Detokenizer::Append(TokenId token) {
  CHECK(tokenizer_->IsValid(token)) << "token " << token << " of " << tokenizer_->vocab_size();
  if (tokenizer_->IsControl(token) && !options_.show_control) return "";
  return AppendBytes(tokenizer_->TokenBytes(token));
}

std::string Detokenizer::AppendBytes(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  absl::string_view rest = pending_;
  std::string text;
  while (!rest.empty()) {
    const Utf8Step step = ReadUtf8(rest);
    if (step.form == Utf8Form::kIncomplete) break;
    if (step.form == Utf8Form::kCharacter) {
      text.append(rest.data(), step.length);
    } else {
      text.append(kReplacementCharacter);
    }
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Detokenizer::Finish() {
  if (pending_.empty()) return "";
  pending_.clear();
  return kReplacementCharacter;
}

}  // namespace octavo
