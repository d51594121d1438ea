#include "common/model/utf8.h"

#include <cstring>

namespace octavo {
namespace {

// How a lead byte goes on: how long the character is and what its second byte may be. Only the
// second byte's range depends on the lead (that is what rules out overlong forms, surrogates and >
// U+10FFFF).
struct Lead {
  uint8_t length;  // 0: no character begins with this byte
  uint8_t second_min;
  uint8_t second_max;
};

constexpr Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step ReadUtf8(absl::string_view text) {
  const auto byte_at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte_at(0);
  const Lead lead = LeadOf(first);
  if (lead.length == 0) return {.form = Utf8Form::kInvalid, .length = 1};
  if (lead.length == 1) return {.length = 1, .code_point = first};
  char32_t code_point = first & (0x7F >> lead.length);
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {.form = Utf8Form::kIncomplete, .length = i};
    const uint8_t byte = byte_at(i);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {.form = Utf8Form::kInvalid, .length = i};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {.length = lead.length, .code_point = code_point};
}

std::optional<size_t> FindInvalidUtf8(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    // Most text is mostly ASCII: eight bytes at a time while none has its high bit set.
    uint64_t word;
    while (i + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      i += sizeof(word);
    }
    if (i == text.size()) break;
    const Utf8Step step = ReadUtf8(text.substr(i));
    if (step.form != Utf8Form::kCharacter) return i;
    i += step.length;
  }
  return std::nullopt;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace octavo
