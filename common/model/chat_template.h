#pragma once

// Chat messages in, the prompt's text out: the Jinja template a model file carries (GGUF
// `tokenizer.chat_template`), rendered as Hugging Face's environment renders it: trim_blocks,
// lstrip_blocks, loop controls, a sandbox in which values cannot be changed, `tojson` as Python's
// json.dumps(ensure_ascii=False), `raise_exception`, `strftime_now`, and `{% generation %}` as
// plain text. The language is a subset of Jinja 3.1; what lies outside it is refused with its name
// and line, never guessed at.
//
// Thread rule: a ChatTemplate is immutable; any number of threads may render it at once.
// Invariants: (1) the same source and input give the same bytes: the time is an input. (2) Whatever
// the template, parsing and rendering end within the limits of jinja_limits.h: no crash, no endless
// loop, no exhausted stack.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "common/model/jinja_limits.h"
#include "nlohmann/json.hpp"

namespace octavo {

namespace jinja {
struct Template;
}

// One turn. Key order is what a template sees, hence ordered_json throughout.
struct ChatMessage {
  std::string role;
  std::string content;
  std::string name;                             // absent when empty
  nlohmann::ordered_json tool_calls = nullptr;  // absent when null; else an array
  std::string tool_call_id;                     // absent when empty
  nlohmann::ordered_json extra =
      nullptr;  // null, or an object of further fields; one named like a field above
                // takes its place (content: null, content: [parts], ...)
};

struct ChatTemplateInput {
  std::span<const ChatMessage> messages;
  nlohmann::ordered_json tools = nullptr;  // null, or an array of JSON schemas
  bool add_generation_prompt = true;
  nlohmann::ordered_json variables =
      nullptr;  // null, or an object: enable_thinking, date_string, documents, ...
  std::optional<absl::CivilSecond>
      now;  // what strftime_now formats; without it strftime_now is undefined
  JinjaLimits limits;
};

class ChatTemplate {
 public:
  // `source` is UTF-8. The token strings are what the template knows as bos_token and eos_token.
  // Errors: InvalidArgument with the line and, for what is not supported, its name.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(absl::string_view source,
                                                             absl::string_view bos_token,
                                                             absl::string_view eos_token);
  ~ChatTemplate();

  // Errors: InvalidArgument with the template's own words when it calls raise_exception, and with
  // line and reason when it fails (an operation on an undefined value, a type that does not fit);
  // ResourceExhausted when a limit is passed.
  absl::StatusOr<std::string> Render(const ChatTemplateInput& input) const;

 private:
  ChatTemplate();

  std::unique_ptr<const jinja::Template> template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace octavo
