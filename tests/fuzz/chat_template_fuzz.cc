// Parses and renders whatever template libFuzzer thinks of over one conversation with tools. Must
// never crash, hang, leak or exhaust the stack. To run it:
//   cmake --preset fuzz && ninja -C build-fuzz chat_template_fuzz
//   build-fuzz/fuzz/chat_template_fuzz -dict=tests/fuzz/chat_template.dict NEW
//   tests/fuzz/corpus/chat_template

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/model/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::ordered_json;
  static const auto* const messages = new std::vector<octavo::ChatMessage>{
      {.role = "system", .content = "Be brief.\n"},
      {.role = "user", .content = " H\u00e9llo \U0001f98a"},
      {.role = "assistant",
       .content = "",
       .tool_calls = ordered_json::parse(
           R"([{"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}])")},
      {.role = "tool", .content = "{}", .name = "f", .tool_call_id = "1"}};
  static const auto* const tools = new ordered_json(ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])"));
  const absl::string_view source(reinterpret_cast<const char*>(data), size);
  auto chat_template = octavo::ChatTemplate::Parse(source, "<s>", "</s>");
  if (!chat_template.ok()) return 0;
  octavo::ChatTemplateInput input;
  input.messages = *messages;
  input.tools = *tools;
  input.now = absl::CivilSecond(2026, 11, 5, 9, 7, 3);
  // Small enough that a loop which runs into them does not slow the fuzzer down.
  input.limits.max_work = 20000;
  input.limits.max_output_bytes = 1 << 16;
  input.limits.max_string_bytes = 1 << 14;
  auto text = (*chat_template)->Render(input);
  return 0;
}
