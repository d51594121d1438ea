// Searching, replacing, joining and padding: the second half of jinja_string_methods.h, shared with
// the filters.

#include <limits>

#include "common/model/jinja_string_methods.h"
#include "common/model/jinja_text.h"
#include "common/status.h"

namespace octavo::jinja {

absl::Status ChargeSearch(Runtime& runtime, absl::string_view haystack, absl::string_view needle) {
  return runtime.Charge((1 + haystack.size() / 8) * (1 + needle.size() / 16));
}

absl::StatusOr<Value> ReplaceText(Runtime& runtime, absl::string_view text,
                                  absl::string_view old_text, absl::string_view new_text,
                                  int64_t count) {
  OCTAVO_RETURN_IF_ERROR(ChargeSearch(runtime, text, old_text));
  if (count < 0) count = std::numeric_limits<int64_t>::max();
  BoundedString out(runtime.limits().max_string_bytes);
  size_t at = 0;
  if (old_text.empty()) {
    // Between all characters and at both ends.
    while (count-- > 0) {
      out.Append(new_text);
      if (at >= text.size()) break;
      size_t begin = at;
      NextCodePoint(text, &at);
      out.Append(text.substr(begin, at - begin));
      OCTAVO_RETURN_IF_ERROR(out.status());
    }
  } else {
    for (; count > 0; --count) {
      size_t found = text.find(old_text, at);
      if (found == absl::string_view::npos) break;
      out.Append(text.substr(at, found - at));
      out.Append(new_text);
      OCTAVO_RETURN_IF_ERROR(out.status());
      at = found + old_text.size();
    }
  }
  out.Append(text.substr(at));
  OCTAVO_RETURN_IF_ERROR(out.status());
  return runtime.NewString(out.Take());
}

absl::StatusOr<Value> JoinTexts(Runtime& runtime, absl::string_view separator,
                                const std::vector<std::string>& parts) {
  BoundedString out(runtime.limits().max_string_bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(parts[i]);
    OCTAVO_RETURN_IF_ERROR(out.status());
  }
  return runtime.NewString(out.Take());
}

absl::StatusOr<Value> CenterText(Runtime& runtime, absl::string_view text, int64_t width) {
  int64_t missing = width - TextLength(text);
  if (missing <= 0) return runtime.NewString(std::string(text));
  int64_t left = missing / 2 + (missing & width & 1);
  BoundedString out(runtime.limits().max_string_bytes);
  out.AppendRepeated(" ", left);
  out.Append(text);
  out.AppendRepeated(" ", missing - left);
  OCTAVO_RETURN_IF_ERROR(out.status());
  return runtime.NewString(out.Take());
}

}  // namespace octavo::jinja
