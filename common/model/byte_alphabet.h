#pragma once

// GPT-2's alphabet of 256 printable characters, one per byte, in which byte-level BPE vocabularies
// are written: printable Latin-1 bytes stand for themselves, the other 68 are U+0100, U+0101, … in
// order, so that a space is "Ġ" (U+0120) and a line feed "Ċ" (U+010A). Source: bytes_to_unicode in
// OpenAI's GPT-2 release. Pure functions.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo {

// The character that stands for `byte`.
char32_t ByteToAlphabet(uint8_t byte);

// The bytes that `text` spells, or nothing if a character is not of the alphabet.
std::optional<std::string> SpelledBytes(absl::string_view text);

// `bytes` written in the alphabet.
std::string SpellBytes(absl::string_view bytes);

}  // namespace octavo
