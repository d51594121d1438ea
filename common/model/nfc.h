#pragma once

// Unicode normalisation form C (UAX #15), on utf8proc's data (Unicode 15). Pure.
//
// utf8proc_map sorts runs of combining marks by exchanging neighbours, which a stranger's text of a
// million marks turns into hours; here each run is sorted in O(n log n).

#include <string>

#include "absl/strings/string_view.h"

namespace octavo {

// Whether every character of `text` lies below U+0300, where all text is NFC already.
bool IsTriviallyNfc(absl::string_view text);

// `text` in NFC. REQUIRES: text is valid UTF-8.
std::string ToNfc(absl::string_view text);

}  // namespace octavo
