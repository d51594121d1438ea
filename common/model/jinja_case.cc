#include "common/model/jinja_case.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/model/jinja_text.h"
#include "utf8proc.h"

namespace octavo::jinja {
namespace {

struct SpecialCase {
  char32_t code_point;
  std::u32string_view upper;
  std::u32string_view title;
};

// Where upper or title case is more than one character; in order. U+1F80 to U+1FAF follow a rule
// instead (IotaUpper).
constexpr SpecialCase kSpecialCases[] = {
    {0x00df, U"SS", U"Ss"},
    {0x0149, U"\u02bcN", U"\u02bcN"},
    {0x01f0, U"J\u030c", U"J\u030c"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03b0, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1e96, U"H\u0331", U"H\u0331"},
    {0x1e97, U"T\u0308", U"T\u0308"},
    {0x1e98, U"W\u030a", U"W\u030a"},
    {0x1e99, U"Y\u030a", U"Y\u030a"},
    {0x1e9a, U"A\u02be", U"A\u02be"},
    {0x1f50, U"\u03a5\u0313", U"\u03a5\u0313"},
    {0x1f52, U"\u03a5\u0313\u0300", U"\u03a5\u0313\u0300"},
    {0x1f54, U"\u03a5\u0313\u0301", U"\u03a5\u0313\u0301"},
    {0x1f56, U"\u03a5\u0313\u0342", U"\u03a5\u0313\u0342"},
    {0x1fb2, U"\u1fba\u0399", U"\u1fba\u0345"},
    {0x1fb3, U"\u0391\u0399", U"\u1fbc"},
    {0x1fb4, U"\u0386\u0399", U"\u0386\u0345"},
    {0x1fb6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1fb7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
    {0x1fbc, U"\u0391\u0399", U"\u1fbc"},
    {0x1fc2, U"\u1fca\u0399", U"\u1fca\u0345"},
    {0x1fc3, U"\u0397\u0399", U"\u1fcc"},
    {0x1fc4, U"\u0389\u0399", U"\u0389\u0345"},
    {0x1fc6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1fc7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
    {0x1fcc, U"\u0397\u0399", U"\u1fcc"},
    {0x1fd2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {0x1fd3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x1fd6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1fd7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
    {0x1fe2, U"\u03a5\u0308\u0300", U"\u03a5\u0308\u0300"},
    {0x1fe3, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x1fe4, U"\u03a1\u0313", U"\u03a1\u0313"},
    {0x1fe6, U"\u03a5\u0342", U"\u03a5\u0342"},
    {0x1fe7, U"\u03a5\u0308\u0342", U"\u03a5\u0308\u0342"},
    {0x1ff2, U"\u1ffa\u0399", U"\u1ffa\u0345"},
    {0x1ff3, U"\u03a9\u0399", U"\u1ffc"},
    {0x1ff4, U"\u038f\u0399", U"\u038f\u0345"},
    {0x1ff6, U"\u03a9\u0342", U"\u03a9\u0342"},
    {0x1ff7, U"\u03a9\u0342\u0399", U"\u03a9\u0342\u0345"},
    {0x1ffc, U"\u03a9\u0399", U"\u1ffc"},
    {0xfb00, U"FF", U"Ff"},
    {0xfb01, U"FI", U"Fi"},
    {0xfb02, U"FL", U"Fl"},
    {0xfb03, U"FFI", U"Ffi"},
    {0xfb04, U"FFL", U"Ffl"},
    {0xfb05, U"ST", U"St"},
    {0xfb06, U"ST", U"St"},
    {0xfb13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xfb14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xfb15, U"\u0544\u053b", U"\u0544\u056b"},
    {0xfb16, U"\u054e\u0546", U"\u054e\u0576"},
    {0xfb17, U"\u0544\u053d", U"\u0544\u056d"},
};

struct Range {
  char32_t first;
  char32_t last;
};

// Cased without being a letter of category Lu, Ll or Lt; in order.
constexpr Range kOtherCased[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
    {0x2e0, 0x2e4},     {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},
    {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c},   {0x2160, 0x217f},   {0x24b6, 0x24e9},   {0x2c7c, 0x2c7d},
    {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
    {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

const SpecialCase* FindSpecialCase(char32_t code_point) {
  const SpecialCase* found = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), code_point,
      [](const SpecialCase& special, char32_t c) { return special.code_point < c; });
  return found != std::end(kSpecialCases) && found->code_point == code_point ? found : nullptr;
}

void AppendAll(std::u32string_view code_points, std::string* out) {
  for (char32_t code_point : code_points) AppendCodePoint(code_point, out);
}

// Greek vowels with a iota below or beside them: the iota becomes a letter of its own behind the
// capital.
bool HasIotaRule(char32_t c) { return c >= 0x1f80 && c <= 0x1faf; }
char32_t IotaUpper(char32_t c) {
  char32_t base = c < 0x1f90 ? 0x1f08 : c < 0x1fa0 ? 0x1f28 : 0x1f68;
  return base + (c & 7);
}

// Unicode's Case_Ignorable: what a sigma looks past.
bool IsCaseIgnorable(char32_t c) {
  constexpr std::u32string_view kInsideWords =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kInsideWords.find(c) != std::u32string_view::npos;
  }
}

// Whether the sigma at [start, end) ends a word: a cased letter before it and none behind,
// ignorable characters aside. Looks no further than kSigmaReach characters each way, so that a row
// of ignorable characters and sigmas stays linear.
constexpr int kSigmaReach = 64;
bool IsFinalSigma(absl::string_view text, size_t start, size_t end) {
  bool cased_before = false;
  for (int i = 0; i < kSigmaReach && start > 0; ++i) {
    do {
      --start;
    } while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80);
    size_t at = start;
    char32_t c = NextCodePoint(text, &at);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  for (int i = 0; i < kSigmaReach && end < text.size(); ++i) {
    char32_t c = NextCodePoint(text, &end);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

}  // namespace

void AppendUpper(char32_t code_point, std::string* out) {
  if (HasIotaRule(code_point)) {
    AppendCodePoint(IotaUpper(code_point), out);
    AppendCodePoint(0x399, out);
  } else if (const SpecialCase* special = FindSpecialCase(code_point)) {
    AppendAll(special->upper, out);
  } else {
    AppendCodePoint(
        static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point))), out);
  }
}

void AppendTitle(char32_t code_point, std::string* out) {
  if (const SpecialCase* special = FindSpecialCase(code_point)) {
    AppendAll(special->title, out);
  } else {
    AppendCodePoint(
        static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point))), out);
  }
}

void AppendLowerAt(absl::string_view text, size_t* at, std::string* out) {
  size_t start = *at;
  char32_t code_point = NextCodePoint(text, at);
  if (code_point == 0x3a3) {
    AppendCodePoint(IsFinalSigma(text, start, *at) ? 0x3c2 : 0x3c3, out);
  } else if (code_point == 0x130) {
    AppendAll(U"i\u0307", out);
  } else {
    AppendCodePoint(
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))), out);
  }
}

bool IsCased(char32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return std::any_of(std::begin(kOtherCased), std::end(kOtherCased), [=](Range range) {
        return code_point >= range.first && code_point <= range.last;
      });
  }
}

}  // namespace octavo::jinja
