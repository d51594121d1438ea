#pragma once

// The two status macros. Debian's Abseil has neither, and each is one line of control flow that
// would otherwise be written at every call that can fail.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define OCTAVO_RETURN_IF_ERROR(expression)           \
  do {                                               \
    ::absl::Status octavo_status_ = (expression);    \
    if (!octavo_status_.ok()) return octavo_status_; \
  } while (false)

#define OCTAVO_STATUS_CONCAT_INNER_(a, b) a##b
#define OCTAVO_STATUS_CONCAT_(a, b) OCTAVO_STATUS_CONCAT_INNER_(a, b)
#define OCTAVO_ASSIGN_OR_RETURN_IMPL_(result, lhs, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return std::move(result).status();         \
  lhs = *std::move(result)

// OCTAVO_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
#define OCTAVO_ASSIGN_OR_RETURN(lhs, expression) \
  OCTAVO_ASSIGN_OR_RETURN_IMPL_(OCTAVO_STATUS_CONCAT_(octavo_result_, __LINE__), lhs, expression)
