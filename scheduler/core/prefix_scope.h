#pragma once

// The scope of a prefix: what decides, besides tokens, whether KV may be shared.

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace octavo {

// Each part that there is, under a tag of its own, so that no part can pass for another: "s" and
// the cache salt, last, as it has no end of its own. (What else changes KV, an adapter say, comes
// before it, as a tag, its length and its bytes.) Empty when there is none.
inline std::string PrefixScope(absl::string_view cache_salt) {
  return cache_salt.empty() ? std::string() : absl::StrCat("s", cache_salt);
}

}  // namespace octavo
