#include "scheduler/rpc/chat_prompt.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "common/wire/errors.h"
#include "nlohmann/json.hpp"
#include "scheduler/rpc/validation.h"

namespace octavo {
namespace {

using wire::InvalidField;

// How deep brackets nest outside strings; what the parser makes of the text is its own affair.
int NestingDepth(const std::string& json) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// Null for an empty text.
absl::StatusOr<nlohmann::ordered_json> ParseJson(const std::string& field, const std::string& text,
                                                 nlohmann::json::value_t type,
                                                 const char* type_name) {
  if (text.empty()) return nlohmann::ordered_json();
  if (text.size() > kMaxJsonBytes) {
    return InvalidField(field, absl::StrCat(field, " has ", text.size(),
                                            " bytes; it must have at most ", kMaxJsonBytes));
  }
  if (const int depth = NestingDepth(text); depth > kMaxJsonDepth) {
    return InvalidField(
        field, absl::StrCat(field, " nests ", depth, " deep; the limit is ", kMaxJsonDepth));
  }
  nlohmann::ordered_json value =
      nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return InvalidField(field, absl::StrCat(field, " is not JSON"));
  if (value.type() != type) return InvalidField(field, absl::StrCat(field, " must be ", type_name));
  return value;
}

absl::StatusOr<ChatMessage> ParseMessage(const std::string& field, const v1::ChatMessage& message) {
  if (message.role().empty() || message.role().size() > kMaxRoleBytes) {
    return InvalidField(field + ".role", absl::StrCat(field, ".role has ", message.role().size(),
                                                      " bytes; it must have 1 to ", kMaxRoleBytes));
  }
  OCTAVO_ASSIGN_OR_RETURN(nlohmann::ordered_json tool_calls,
                          ParseJson(field + ".tool_calls_json", message.tool_calls_json(),
                                    nlohmann::json::value_t::array, "a JSON array"));
  ChatMessage parsed;
  parsed.role = message.role();
  parsed.content = message.content();
  parsed.name = message.name();
  parsed.tool_calls = std::move(tool_calls);
  parsed.tool_call_id = message.tool_call_id();
  return parsed;
}

}  // namespace

absl::StatusOr<std::string> RenderChat(const v1::ChatPrompt& chat, const ServedModel& model) {
  if (model.chat_template == nullptr) {
    return InvalidField("chat",
                        absl::StrCat("chat: the model has no chat template that can be used",
                                     model.chat_template_problem.empty() ? "" : ": ",
                                     model.chat_template_problem, "; give text or token_ids"));
  }
  if (chat.messages_size() < 1 || chat.messages_size() > kMaxChatMessages) {
    return InvalidField("chat.messages",
                        absl::StrCat("chat.messages has ", chat.messages_size(),
                                     " entries; it must have 1 to ", kMaxChatMessages));
  }
  std::vector<ChatMessage> messages;
  size_t bytes = 0;
  for (int i = 0; i < chat.messages_size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(ChatMessage message,
                            ParseMessage(absl::StrCat("chat.messages[", i, "]"), chat.messages(i)));
    bytes += message.content.size() + message.name.size() + message.tool_call_id.size();
    messages.push_back(std::move(message));
  }
  if (bytes > kMaxPromptBytes) {
    return InvalidField("chat.messages",
                        absl::StrCat("chat.messages have ", bytes,
                                     " bytes; they must have at most ", kMaxPromptBytes));
  }
  ChatTemplateInput input;
  input.messages = messages;
  input.add_generation_prompt = !chat.omit_generation_prompt();
  OCTAVO_ASSIGN_OR_RETURN(input.tools, ParseJson("chat.tools_json", chat.tools_json(),
                                                 nlohmann::json::value_t::array, "a JSON array"));
  OCTAVO_ASSIGN_OR_RETURN(input.variables,
                          ParseJson("chat.template_variables_json", chat.template_variables_json(),
                                    nlohmann::json::value_t::object, "a JSON object"));
  input.now = absl::ToCivilSecond(absl::Now(), absl::UTCTimeZone());
  absl::StatusOr<std::string> rendered = model.chat_template->Render(input);
  if (!rendered.ok())
    return InvalidField("chat", absl::StrCat("chat: ", rendered.status().message()));
  return rendered;
}

}  // namespace octavo
