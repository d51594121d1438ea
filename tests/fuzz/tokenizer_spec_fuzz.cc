// Whatever a model file holds as vocabulary, merges and token types: it is refused, or the
// tokenizer made of it encodes and decodes any text within its contract.

#include <glog/logging.h>

#include <array>
#include <optional>
#include <string>

#include "common/model/byte_alphabet.h"
#include "common/model/detokenizer.h"
#include "common/model/tokenizer.h"
#include "common/model/utf8.h"
#include "tests/fuzz/byte_source.h"

namespace octavo {
namespace {

std::optional<TokenId> ReadId(ByteSource& source) {
  if (!source.Flag()) return std::nullopt;
  return static_cast<TokenId>(source.Below(40)) - 2;
}

TokenizerSpec ReadSpec(ByteSource& source) {
  constexpr std::array<const char*, 6> kNames = {"gpt2", "smollm", "llama-bpe", "qwen2", "", "x"};
  TokenizerSpec spec;
  spec.pre_tokenizer = kNames[source.Below(kNames.size())];
  spec.bos_id = ReadId(source);
  spec.eos_id = ReadId(source);
  spec.eot_id = ReadId(source);
  spec.add_bos = source.Flag();
  spec.add_space_prefix = source.Flag();
  spec.tokens.resize(source.Below(40));
  for (std::string& token : spec.tokens) {
    const bool spelled = source.Flag();
    token = source.Text(12);
    if (spelled) token = SpellBytes(token);
  }
  if (source.Flag()) {
    spec.types.resize(source.Flag() ? spec.tokens.size() : 3);
    for (TokenType& type : spec.types) type = static_cast<TokenType>(source.Below(8));
  }
  for (size_t n = source.Below(20); n > 0 && !spec.tokens.empty(); --n) {
    if (source.Below(8) == 7) {
      spec.merges.push_back(source.Text(8));
      continue;
    }
    // Mostly merges that could be real: two tokens, with what they join to added.
    const std::string left = spec.tokens[source.Below(spec.tokens.size())];
    const std::string right = spec.tokens[source.Below(spec.tokens.size())];
    spec.merges.push_back(left + " " + right);
    if (left.size() + right.size() > 64) continue;
    spec.tokens.push_back(left + right);
    if (!spec.types.empty()) spec.types.push_back(TokenType::kNormal);
  }
  return spec;
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  ByteSource source({bytes, size});
  const auto tokenizer = Tokenizer::Create(ReadSpec(source));
  if (!tokenizer.ok()) return 0;
  const std::string text = source.Rest();
  for (const bool parse_special : {false, true}) {
    const auto ids = (*tokenizer)->Encode(text, {.parse_special = parse_special, .add_bos = true});
    if (!ids.ok()) continue;
    Detokenizer detokenizer(tokenizer->get(), {.show_control = true});
    for (size_t i = 0; i < ids->size(); ++i) {
      const TokenId id = (*ids)[i];
      CHECK((*tokenizer)->IsValid(id));
      const bool is_bos = i == 0 && id == (*tokenizer)->bos_id();
      CHECK(parse_special || is_bos || !(*tokenizer)->IsControl(id));
      CHECK(!FindInvalidUtf8(detokenizer.Append(id)));
    }
    CHECK(!FindInvalidUtf8(detokenizer.Finish()));
  }
  return 0;
}
