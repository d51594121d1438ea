#pragma once

// The model that the fuzzers of the scheduler's border serve: a small vocabulary with a merge, a
// control token and a user's token, and a chat template that uses what templates may.

#include <cstdint>
#include <utility>

#include "scheduler/runtime/served_model.h"
#include "tests/unit/common/model/small_vocabulary.h"

namespace octavo {

constexpr uint32_t kContextLength = 512;
constexpr TokenId kEndOfTurn = 259;
constexpr TokenId kLastToken = kEndOfTurn + 1;

inline ServedModel MakeServedModel() {
  ServedModel model;
  model.name = "small";
  model.config.context_length = kContextLength;
  TokenizerSpec spec =
      SmallSpec({{"a", "a"}, {" ", "a"}, {"aa", "a"}},
                {{"<|end|>", TokenType::kControl}, {"<t>", TokenType::kUserDefined}});
  spec.eos_id = kEndOfTurn;
  model.config.vocab_size = static_cast<uint32_t>(spec.tokens.size());
  model.tokenizer = Tokenizer::Create(std::move(spec)).value();
  model.chat_template =
      ChatTemplate::Parse(
          "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: "
          "{{ m.content | trim }}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ "
          "c.function.name }}"
          "{{ c | tojson(indent=2) }}{% endfor %}{% endif %}<|end|>{% endfor %}{{ style }}"
          "{% if add_generation_prompt %}assistant:{% endif %}",
          "", "<|end|>")
          .value();
  return model;
}

}  // namespace octavo
