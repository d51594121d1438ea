#include "common/model/nfc.h"

#include <glog/logging.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "common/model/utf8.h"

namespace octavo {
namespace {

// Below this code point every character is a starter, composed as far as it goes, and no second
// half of any composition.
constexpr char32_t kFirstMark = 0x300;
constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
constexpr int kMaxDecomposition = 18;  // UAX #15: no character decomposes into more

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void AppendDecomposed(char32_t code_point, std::vector<utf8proc_int32_t>& out) {
  utf8proc_int32_t decomposed[kMaxDecomposition];
  int boundary_state = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), decomposed,
                              kMaxDecomposition, kDecompose, &boundary_state);
  CHECK(count > 0 && count <= kMaxDecomposition) << "U+" << std::hex << uint32_t{code_point};
  out.insert(out.end(), decomposed, decomposed + count);
}

// Canonical ordering: each run of non-starters by combining class, equals as they stand.
void SortMarks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_mark = [](utf8proc_int32_t c) { return CombiningClass(c) != 0; };
  std::vector<uint64_t> keys;  // class (8 bits), position (32), code point (21)
  auto begin = code_points.begin();
  while (true) {
    begin = std::find_if(begin, code_points.end(), is_mark);
    if (begin == code_points.end()) return;
    const auto end = std::find_if_not(begin, code_points.end(), is_mark);
    keys.clear();
    for (auto mark = begin; mark != end; ++mark) {
      keys.push_back(static_cast<uint64_t>(CombiningClass(*mark)) << 53 |
                     static_cast<uint64_t>(mark - begin) << 21 | static_cast<uint64_t>(*mark));
    }
    std::sort(keys.begin(), keys.end());
    for (const uint64_t key : keys) *begin++ = static_cast<utf8proc_int32_t>(key & 0x1FFFFF);
  }
}

// Appends the NFC of `decomposed`, which it uses up.
void AppendComposed(std::vector<utf8proc_int32_t>& decomposed, std::string& out) {
  SortMarks(decomposed);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()), kCompose);
  CHECK_GE(count, 0) << utf8proc_errmsg(count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<char32_t>(decomposed[static_cast<size_t>(i)]), out);
  }
  decomposed.clear();
}

}  // namespace

bool IsTriviallyNfc(absl::string_view text) {
  // U+0300 is 0xCC 0x80, the first character whose lead byte is 0xCC or more.
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

std::string ToNfc(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> segment;  // a character below kFirstMark, if any, and those above
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    CHECK(step.form == Utf8Form::kCharacter);
    if (step.code_point < kFirstMark && !segment.empty()) AppendComposed(segment, out);
    const bool stands_alone =
        step.code_point < kFirstMark &&
        (text.size() == step.length || IsTriviallyNfc(text.substr(step.length, 1)));
    if (stands_alone) {
      out.append(text.data(), step.length);
    } else {
      AppendDecomposed(step.code_point, segment);
    }
    text.remove_prefix(step.length);
  }
  AppendComposed(segment, out);
  return out;
}

}  // namespace octavo
