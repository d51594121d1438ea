// Whatever a stranger sends as text, as sampled bytes or as stop strings: encoding and decoding
// give the text back, only UTF-8 is accepted and shown, control tokens come only when asked for,
// and no stop string is ever shown.

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/model/detokenizer.h"
#include "common/model/nfc.h"
#include "common/model/stop_strings.h"
#include "common/model/tokenizer.h"
#include "common/model/utf8.h"
#include "tests/fuzz/byte_source.h"
#include "tests/unit/common/model/small_vocabulary.h"

namespace octavo {
namespace {

constexpr std::array<const char*, 4> kPreTokenizers = {"gpt2", "smollm", "llama-bpe", "qwen2"};

std::unique_ptr<Tokenizer> MakeTokenizer(const char* pre_tokenizer) {
  const TokenizerSpec spec = SmallSpec({{"a", "a"},
                                        {"aa", "aa"},
                                        {" ", "a"},
                                        {"b", "c"},
                                        {"a", "b"},
                                        {"ab", "c"},
                                        {" ", " "},
                                        {"\xC3", "\xA9"},
                                        {"\n", "\n"},
                                        {"  ", " "}},
                                       {{"<|im_end|>", TokenType::kControl},
                                        {"<|", TokenType::kControl},
                                        {"<t>", TokenType::kUserDefined},
                                        {"<t><t>", TokenType::kUserDefined}},
                                       pre_tokenizer);
  return Tokenizer::Create(spec).value();
}

void CheckEncoding(const Tokenizer& tokenizer, bool normalizes, const std::string& text,
                   bool parse_special) {
  const auto ids = tokenizer.Encode(text, {.parse_special = parse_special});
  CHECK_EQ(ids.ok(), !FindInvalidUtf8(text).has_value()) << ids.status();
  if (!ids.ok()) return;
  const std::string bytes = tokenizer.DecodeBytes(*ids);
  CHECK(!FindInvalidUtf8(bytes));
  if (!normalizes) CHECK(bytes == text);
  // Around special tokens each piece is normalised by itself; whole, that is NFC again.
  if (normalizes) CHECK(ToNfc(bytes) == ToNfc(text));
  for (const TokenId id : *ids) CHECK(parse_special || !tokenizer.IsControl(id));
}

// The pieces of `bytes`, cut anywhere, as a stream shows them.
std::vector<std::string> Pieces(const Tokenizer& tokenizer, const std::string& bytes,
                                std::minstd_rand& random) {
  Detokenizer whole(&tokenizer), cut(&tokenizer);
  std::string expected = whole.AppendBytes(bytes);
  expected += whole.Finish();
  std::vector<std::string> pieces;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = 1 + random() % 8;
    pieces.push_back(cut.AppendBytes(absl::string_view(bytes).substr(at, length)));
    at += length;
  }
  pieces.push_back(cut.Finish());
  std::string together;
  for (const std::string& piece : pieces) {
    CHECK(!FindInvalidUtf8(piece));
    together += piece;
  }
  CHECK(together == expected);
  return pieces;
}

void CheckStopStrings(const std::vector<std::string>& stops,
                      const std::vector<std::string>& pieces) {
  auto matcher = StopStringMatcher::Create(stops);
  if (!matcher.ok()) return;
  std::string seen, shown;
  for (const std::string& piece : pieces) {
    const StopStringMatcher::Result result = matcher->Append(piece);
    CHECK(!FindInvalidUtf8(result.text));
    seen += piece;
    shown += result.text;
    if (!result.matched) continue;
    const std::string& stop = stops[*result.matched];
    CHECK(seen.compare(shown.size(), stop.size(), stop) == 0);
    CHECK(seen.compare(0, shown.size(), shown) == 0);
    for (const std::string& other : stops) CHECK(shown.find(other) == std::string::npos);
    return;
  }
  shown += matcher->Finish();
  CHECK(shown == seen);
  for (const std::string& stop : stops) CHECK(shown.find(stop) == std::string::npos);
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  static const auto* const kTokenizers = [] {
    auto* tokenizers = new std::vector<std::unique_ptr<Tokenizer>>;
    for (const char* name : kPreTokenizers) tokenizers->push_back(MakeTokenizer(name));
    return tokenizers;
  }();
  ByteSource source({bytes, size});
  const size_t which = source.Below(kPreTokenizers.size());
  const bool parse_special = source.Flag();
  std::minstd_rand random(static_cast<uint32_t>(source.Below(256)));
  std::vector<std::string> stops(source.Below(4));
  for (std::string& stop : stops) stop = source.Text(6);
  const std::string text = source.Rest();
  const Tokenizer& tokenizer = *(*kTokenizers)[which];
  CheckEncoding(tokenizer, kPreTokenizers[which] == std::string("qwen2"), text, parse_special);
  CheckStopStrings(stops, Pieces(tokenizer, text, random));
  return 0;
}
