#include "common/ready_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace octavo {

absl::Status WriteReadyFile(const std::string& path,
                            const std::map<std::string, std::string>& fields) {
  if (path.empty()) return absl::OkStatus();
  nlohmann::json content = {{"pid", getpid()}};
  for (const auto& [name, value] : fields) content[name] = value;
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream file(temporary);
  file << content.dump() << "\n";
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("cannot write the ready file ", path, ": ", reason));
  }
  return absl::OkStatus();
}

}  // namespace octavo
