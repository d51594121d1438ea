// Renders chat templates for tests/e2e/test_chat_template.py. Each line on stdin is a JSON object:
// template, messages, and optionally bos_token, eos_token, tools, add_generation_prompt, variables,
// now ("2026-11-30T12:34:56"). Each line on stdout answers it: {"text": ...} or {"error": ...,
// "code": ...}.

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/civil_time.h"
#include "common/model/chat_template.h"
#include "nlohmann/json.hpp"

namespace {

using nlohmann::ordered_json;
using octavo::ChatMessage;

ChatMessage ToMessage(const ordered_json& json) {
  ChatMessage message;
  message.extra = ordered_json::object();
  for (const auto& [key, value] : json.items()) {
    if (key == "role" && value.is_string()) {
      message.role = value;
    } else if (key == "content" && value.is_string()) {
      message.content = value;
    } else if (key == "tool_calls") {
      message.tool_calls = value;
    } else {
      message.extra[key] = value;
    }
  }
  return message;
}

absl::StatusOr<std::string> Render(const ordered_json& request) {
  auto chat_template = octavo::ChatTemplate::Parse(request.at("template").get<std::string>(),
                                                   request.value("bos_token", "<s>"),
                                                   request.value("eos_token", "</s>"));
  if (!chat_template.ok()) return chat_template.status();
  std::vector<ChatMessage> messages;
  for (const ordered_json& message : request.at("messages")) messages.push_back(ToMessage(message));
  octavo::ChatTemplateInput input;
  input.messages = messages;
  input.tools = request.value("tools", ordered_json());
  input.add_generation_prompt = request.value("add_generation_prompt", true);
  input.variables = request.value("variables", ordered_json());
  absl::CivilSecond now;
  if (absl::ParseCivilTime(request.value("now", ""), &now)) input.now = now;
  return (*chat_template)->Render(input);
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    absl::StatusOr<std::string> text = Render(ordered_json::parse(line));
    ordered_json answer;
    if (text.ok()) {
      answer["text"] = *text;
    } else {
      answer["error"] = std::string(text.status().message());
      answer["code"] = absl::StatusCodeToString(text.status().code());
    }
    std::cout << answer.dump() << "\n";
  }
  return 0;
}
