#include "common/model/chat_template.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/jinja_functions.h"
#include "common/model/jinja_interpreter.h"
#include "common/model/jinja_parser.h"
#include "common/model/jinja_print.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo {
namespace {

using jinja::FromJson;
using jinja::Runtime;
using jinja::Value;
using Variables = std::vector<std::pair<std::string, Value>>;

absl::Status Named(const absl::Status& status, absl::string_view what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

// The message as the template sees it: a dict of role, content, and whatever else it has.
nlohmann::ordered_json ToJson(const ChatMessage& message) {
  nlohmann::ordered_json json = {{"role", message.role}, {"content", message.content}};
  if (!message.name.empty()) json["name"] = message.name;
  if (!message.tool_calls.is_null()) json["tool_calls"] = message.tool_calls;
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  for (const auto& [key, value] : message.extra.items()) json[key] = value;
  return json;
}

absl::StatusOr<Value> MessagesValue(Runtime& runtime, std::span<const ChatMessage> messages) {
  std::vector<Value> values;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].extra.is_null() && !messages[i].extra.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "].extra must be null or a JSON object"));
    }
    absl::StatusOr<Value> value = FromJson(runtime, ToJson(messages[i]));
    if (!value.ok()) return Named(value.status(), absl::StrCat("messages[", i, "]"));
    values.push_back(*std::move(value));
  }
  return runtime.NewSequence(std::move(values), jinja::SequenceKind::kList);
}

// What the template's names stand for before it assigns any.
absl::StatusOr<Variables> InputVariables(Runtime& runtime, const ChatTemplateInput& input,
                                         const std::string& bos_token,
                                         const std::string& eos_token) {
  Variables variables;
  OCTAVO_ASSIGN_OR_RETURN(Value messages, MessagesValue(runtime, input.messages));
  variables.emplace_back("messages", std::move(messages));
  absl::StatusOr<Value> tools = FromJson(runtime, input.tools);
  if (!tools.ok()) return Named(tools.status(), "tools");
  variables.emplace_back("tools", *std::move(tools));
  variables.emplace_back("documents", Value());
  variables.emplace_back("add_generation_prompt", Value(input.add_generation_prompt));
  variables.emplace_back("bos_token", Value::String(bos_token));
  variables.emplace_back("eos_token", Value::String(eos_token));
  if (!input.variables.is_null() && !input.variables.is_object()) {
    return absl::InvalidArgumentError("variables must be null or a JSON object");
  }
  for (const auto& [name, json] : input.variables.items()) {
    absl::StatusOr<Value> value = FromJson(runtime, json);
    if (!value.ok()) return Named(value.status(), absl::StrCat("variables.", name));
    variables.emplace_back(name, *std::move(value));
  }
  return variables;
}

}  // namespace

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(absl::string_view source,
                                                                  absl::string_view bos_token,
                                                                  absl::string_view eos_token) {
  for (absl::string_view text : {source, bos_token, eos_token}) {
    if (!jinja::IsValidUtf8(text)) {
      return absl::InvalidArgumentError("the chat template or its bos or eos token is not UTF-8");
    }
  }
  auto parsed = jinja::ParseTemplate(source);
  if (!parsed.ok()) return Named(parsed.status(), "chat template");
  std::unique_ptr<ChatTemplate> chat_template(new ChatTemplate);
  chat_template->template_ = *std::move(parsed);
  chat_template->bos_token_ = std::string(bos_token);
  chat_template->eos_token_ = std::string(eos_token);
  return chat_template;
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatTemplateInput& input) const {
  Runtime runtime(input.limits, input.now);
  OCTAVO_ASSIGN_OR_RETURN(Variables variables,
                          InputVariables(runtime, input, bos_token_, eos_token_));
  absl::StatusOr<std::string> text = jinja::Interpreter(runtime).Render(*template_, variables);
  if (text.ok()) return text;
  if (jinja::IsRaised(text.status())) return absl::InvalidArgumentError(text.status().message());
  return Named(text.status(), "chat template");
}

}  // namespace octavo
