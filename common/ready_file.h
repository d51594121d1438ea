#pragma once

// What a process tells its parent when it serves: a small JSON file, written whole or not at all
// (temporary file, then rename).

#include <map>
#include <string>

#include "absl/status/status.h"

namespace octavo {

// {"pid": 123, "listen": "127.0.0.1:7000", …}: the process id and `fields`. An empty `path` writes
// nothing. Unavailable with the reason.
absl::Status WriteReadyFile(const std::string& path,
                            const std::map<std::string, std::string>& fields);

}  // namespace octavo
