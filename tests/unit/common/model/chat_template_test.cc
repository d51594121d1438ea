#include "common/model/chat_template.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

constexpr char kChatMl[] =
    "{% for message in messages %}{% if loop.first and message.role != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

std::unique_ptr<ChatTemplate> Parse(absl::string_view source) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(source, "<s>", "</s>");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *std::move(parsed);
}

absl::StatusOr<std::string> Render(absl::string_view source, const ChatTemplateInput& input = {}) {
  return Parse(source)->Render(input);
}

TEST(ChatTemplateTest, RendersAConversation) {
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "Hi"}};
  ChatTemplateInput input;
  input.messages = messages;
  EXPECT_EQ(*Render(kChatMl, input),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  input.add_generation_prompt = false;
  EXPECT_THAT(*Render(kChatMl, input), testing::EndsWith("Hi<|im_end|>\n"));
}

TEST(ChatTemplateTest, ShowsATemplateTheTokensToolsVariablesAndTime) {
  ChatTemplateInput input;
  input.tools = nlohmann::ordered_json::parse(R"([{"z": 1, "a": "é"}])");
  input.variables = {{"enable_thinking", false}};
  EXPECT_EQ(*Render("{{ bos_token }}{{ eos_token }}{{ tools[0] | tojson }}{{ enable_thinking }}"
                    "{{ strftime_now is defined }}",
                    input),
            "<s></s>{\"z\": 1, \"a\": \"é\"}FalseFalse");
  input.now = absl::CivilSecond(2026, 11, 5, 9, 7, 3);
  EXPECT_EQ(*Render("{{ strftime_now('%d %b %Y') }}", input), "05 Nov 2026");
}

TEST(ChatTemplateTest, GivesAMessageOnlyTheFieldsItHas) {
  std::vector<ChatMessage> messages(2);
  messages[0] = {.role = "assistant", .content = "x", .extra = {{"content", nullptr}}};
  messages[1] = {.role = "tool", .content = "y", .name = "f", .tool_call_id = "1"};
  ChatTemplateInput input;
  input.messages = messages;
  EXPECT_EQ(*Render("{{ messages }}", input),
            "[{'role': 'assistant', 'content': None}, "
            "{'role': 'tool', 'content': 'y', 'name': 'f', 'tool_call_id': '1'}]");
}

TEST(ChatTemplateTest, PassesOnWhatTheTemplateRaises) {
  absl::Status status = Render("\n{{ raise_exception('Roles must alternate') }}").status();
  EXPECT_EQ(status, absl::InvalidArgumentError("Roles must alternate"));
}

TEST(ChatTemplateTest, NamesLineAndReasonOfAFailure) {
  absl::Status status = Render("a\n\n{{ messages.x.y }}").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("chat template: line 3: 'list object' has no attribute 'x'"));
  status = ChatTemplate::Parse("\n{% extends 'x' %}", "", "").status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("chat template: line 2: the tag 'extends' is not supported"));
}

TEST(ChatTemplateTest, RefusesInvalidUtf8WhereverItComesFrom) {
  EXPECT_FALSE(ChatTemplate::Parse("\xff", "", "").ok());
  EXPECT_FALSE(ChatTemplate::Parse("x", "\xc0\xaf", "").ok());
  EXPECT_FALSE(ChatTemplate::Parse("x", "", "\xed\xa0\x80").ok());
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "\xf8"}};
  ChatTemplateInput input;
  input.messages = messages;
  EXPECT_THAT(std::string(Render("x", input).status().message()), HasSubstr("messages[0]"));
}

TEST(ChatTemplateTest, RefusesNumbersThatDoNotFit) {
  ChatTemplateInput input;
  input.variables = {{"big", 18446744073709551615u}};
  EXPECT_THAT(std::string(Render("x", input).status().message()), HasSubstr("variables.big"));
}

TEST(ChatTemplateTest, HoldsEveryLimitAndNamesIt) {
  ChatTemplateInput input;
  auto message = [&input](absl::string_view source) {
    absl::Status status = Render(source, input).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << source;
    return std::string(status.message());
  };
  input.limits.max_work = 1000;
  EXPECT_THAT(message("{% for i in range(2000) %}{% endfor %}"), HasSubstr("max_work"));
  input.limits = JinjaLimits();
  input.limits.max_output_bytes = 10;
  EXPECT_THAT(message("{% for i in range(20) %}x{% endfor %}"), HasSubstr("max_output_bytes"));
  input.limits = JinjaLimits();
  input.limits.max_string_bytes = 10;
  EXPECT_THAT(message("{% set x = 'abc' * 4 %}"), HasSubstr("max_string_bytes"));
  input.limits = JinjaLimits();
  EXPECT_THAT(message("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("max_evaluation_depth"));
  EXPECT_THAT(message("{% set n = namespace(a=1) %}{% for i in range(200) %}"
                      "{% set n.a = [n.a] %}{% endfor %}"),
              HasSubstr("max_value_depth"));
}

TEST(ChatTemplateTest, SurvivesMacrosAndLoopsThatOutliveTheirScopes) {
  EXPECT_EQ(*Render("{% set n = namespace() %}{% for i in [1, 2] %}"
                    "{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{% set n.l = loop %}"
                    "{% endfor %}{{ n.m() }}{{ n.l.index }}{{ n.l.last }}"),
            "22True");
}

TEST(ChatTemplateTest, RendersOnManyThreadsAtOnce) {
  const std::unique_ptr<ChatTemplate> chat_template = Parse(kChatMl);
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "Hi"}};
  std::vector<std::string> texts(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& text : texts) {
      threads.emplace_back([&chat_template, &messages, &text] {
        for (int i = 0; i < 100; ++i) {
          ChatTemplateInput input;
          input.messages = messages;
          text = chat_template->Render(input).value_or("failed");
        }
      });
    }
  }
  EXPECT_THAT(texts, testing::Each(testing::EndsWith("<|im_start|>assistant\n")));
}

}  // namespace
}  // namespace octavo
