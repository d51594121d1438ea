#pragma once

// The one home of what a chat template may use. Templates come out of model files that strangers
// make: each limit turns a hostile one into an error. Every limit is far above what a known
// template needs for a prompt that a model could read.

#include <cstddef>
#include <cstdint>

namespace octavo {

// While parsing.
constexpr size_t kJinjaMaxSourceBytes = size_t{1} << 18;
constexpr size_t kJinjaMaxNameBytes = 256;
// Parameters of a macro, and keyword arguments of a call.
constexpr size_t kJinjaMaxParameters = 255;
// Levels of the syntax tree, statements and expressions together (Python refuses 200 nested
// parentheses as well).
constexpr int kJinjaMaxTreeDepth = 150;

// While rendering.
struct JinjaLimits {
  size_t max_output_bytes = size_t{32} << 20;
  // Bytes of one string value.
  size_t max_string_bytes = size_t{16} << 20;
  // Units of work, of about 0.1 us and at most 16 bytes of memory each (jinja_runtime.h). A
  // template spends some hundred on a message, and one for some bytes of text.
  uint64_t max_work = uint64_t{1} << 24;
  // Nested evaluations, macro calls and recursive loops included; each takes well under 2 KiB of
  // stack.
  int max_evaluation_depth = 800;
  // Lists in lists, dicts in dicts.
  int max_value_depth = 100;
};

// As Jinja's sandbox.
constexpr int64_t kJinjaMaxRange = 100000;

}  // namespace octavo
