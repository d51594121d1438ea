#pragma once

// Tokens to tree: Jinja's grammar as Hugging Face's environment sees it (loop controls and
// `generation` included; templates in files, inheritance, `do` and translation are not there).

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/jinja_ast.h"

namespace octavo::jinja {

// Errors: InvalidArgument "line N: ...", naming what is unexpected, unknown, unsupported or too
// large. REQUIRES: source is valid UTF-8.
absl::StatusOr<std::unique_ptr<const Template>> ParseTemplate(absl::string_view source);

}  // namespace octavo::jinja
