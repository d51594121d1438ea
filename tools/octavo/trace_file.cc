#include "tools/octavo/trace_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace octavo::cli {
namespace {

absl::Status Malformed(size_t line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

absl::StatusOr<RequestLength> ParseJsonLine(absl::string_view line, size_t number) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return Malformed(number, "it is not a JSON object");
  RequestLength length;
  for (const auto& [key, field] : {std::pair("input_length", &length.prompt_tokens),
                                   {"output_length", &length.output_tokens}}) {
    const auto found = row.find(key);
    if (found == row.end() || !found->is_number_unsigned() || found->get<uint64_t>() > UINT32_MAX)
      return Malformed(number, absl::StrCat("\"", key, "\" is not a whole number"));
    *field = found->get<uint32_t>();
  }
  return length;
}

// Where the two columns stand in a CSV header.
absl::StatusOr<std::array<size_t, 2>> FindColumns(absl::string_view header) {
  const std::vector<absl::string_view> names = absl::StrSplit(header, ',');
  std::array<size_t, 2> columns{};
  for (size_t i = 0; i < 2; ++i) {
    const char* const name = i == 0 ? "input_tokens" : "output_tokens";
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return Malformed(1, absl::StrCat("the header has no column ", name,
                                       "; a trace is CSV with input_tokens and output_tokens, or "
                                       "JSON lines with input_length and output_length"));
    }
    columns[i] = static_cast<size_t>(found - names.begin());
  }
  return columns;
}

absl::StatusOr<RequestLength> ParseCsvLine(absl::string_view line, size_t number,
                                           const std::array<size_t, 2>& columns) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  std::array<uint32_t, 2> values{};
  for (size_t i = 0; i < 2; ++i) {
    if (columns[i] >= cells.size() || !absl::SimpleAtoi(cells[columns[i]], &values[i]))
      return Malformed(number, absl::StrCat("column ", columns[i] + 1, " is not a whole number"));
  }
  return RequestLength{values[0], values[1]};
}

}  // namespace

absl::StatusOr<std::vector<RequestLength>> ParseTrace(absl::string_view text) {
  std::vector<RequestLength> requests;
  std::array<size_t, 2> columns{};
  const bool is_json = absl::StartsWith(text, "{");
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    if (line.empty()) continue;
    if (number == 1 && !is_json) {
      const auto found = FindColumns(line);
      if (!found.ok()) return found.status();
      columns = *found;
      continue;
    }
    const absl::StatusOr<RequestLength> request =
        is_json ? ParseJsonLine(line, number) : ParseCsvLine(line, number, columns);
    if (!request.ok()) return request.status();
    requests.push_back(*request);
  }
  if (requests.empty()) return absl::InvalidArgumentError("it has no requests");
  return requests;
}

absl::StatusOr<std::vector<RequestLength>> ReadTraceFile(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");  // reads plain files as they are
  if (file == nullptr)
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  std::string text;
  std::array<char, 1 << 16> buffer;
  int count = 0;
  while ((count = gzread(file, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), count);
  gzclose(file);
  if (count < 0) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  absl::StatusOr<std::vector<RequestLength>> requests = ParseTrace(text);
  if (requests.ok()) return requests;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", requests.status().message()));
}

}  // namespace octavo::cli
