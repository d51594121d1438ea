#include "common/model/byte_alphabet.h"

#include <array>

#include "common/model/utf8.h"

namespace octavo {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr char32_t kFirstSubstitute = 0x100;
constexpr size_t kAlphabetEnd = kFirstSubstitute + 68;  // one more than the last character

struct Alphabet {
  std::array<char32_t, 256> character = {};     // by byte
  std::array<int16_t, kAlphabetEnd> byte = {};  // by character, -1 if it is not of the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  char32_t substitute = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = StandsForItself(byte) ? static_cast<char32_t>(byte) : substitute++;
    alphabet.character[static_cast<size_t>(byte)] = c;
    alphabet.byte[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t ByteToAlphabet(uint8_t byte) { return kAlphabet.character[byte]; }

std::optional<std::string> SpelledBytes(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    if (step.form != Utf8Form::kCharacter || step.code_point >= kAlphabetEnd) return std::nullopt;
    const int16_t byte = kAlphabet.byte[step.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    text.remove_prefix(step.length);
  }
  return bytes;
}

std::string SpellBytes(absl::string_view bytes) {
  std::string text;
  for (const char byte : bytes) AppendUtf8(ByteToAlphabet(static_cast<uint8_t>(byte)), text);
  return text;
}

}  // namespace octavo
