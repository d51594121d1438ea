#include "tools/octavo/trace_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace octavo::cli {
namespace {

absl::Status Malformed(size_t line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
}

absl::StatusOr<nlohmann::json> ParseObject(absl::string_view line, size_t number) {
  nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return Malformed(number, "it is not a JSON object");
  return row;
}

absl::StatusOr<uint32_t> GetLength(const nlohmann::json& row, const char* key, size_t number) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number_unsigned() || found->get<uint64_t>() > UINT32_MAX)
    return Malformed(number, absl::StrCat("\"", key, "\" is not a whole number"));
  return found->get<uint32_t>();
}

absl::StatusOr<RequestLength> ParseJsonLine(absl::string_view line, size_t number) {
  OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json row, ParseObject(line, number));
  RequestLength length;
  OCTAVO_ASSIGN_OR_RETURN(length.prompt_tokens, GetLength(row, "input_length", number));
  OCTAVO_ASSIGN_OR_RETURN(length.output_tokens, GetLength(row, "output_length", number));
  return length;
}

absl::StatusOr<RequestPrefix> ParsePrefixLine(absl::string_view line, size_t number) {
  OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json row, ParseObject(line, number));
  RequestPrefix prefix;
  OCTAVO_ASSIGN_OR_RETURN(prefix.prompt_tokens, GetLength(row, "input_length", number));
  if (prefix.prompt_tokens == 0) return Malformed(number, "\"input_length\" is 0");
  const auto ids = row.find("hash_ids");
  if (ids == row.end() || !ids->is_array()) return Malformed(number, "it has no \"hash_ids\"");
  const uint64_t blocks =
      (uint64_t{prefix.prompt_tokens} + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (ids->size() != blocks) {
    return Malformed(number, absl::StrCat("\"hash_ids\" has ", ids->size(), " ids; ",
                                          prefix.prompt_tokens, " tokens take ", blocks));
  }
  for (const nlohmann::json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      return Malformed(number, absl::StrCat("a hash id is not a whole number up to ", INT32_MAX));
    prefix.block_ids.push_back(id.get<uint32_t>());
  }
  return prefix;
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

absl::StatusOr<std::string> ReadText(const std::string& path) {
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
  return text;
}

template <typename Request>
absl::StatusOr<std::vector<Request>> ParseFile(
    const std::string& path, absl::StatusOr<std::vector<Request>> (*parse)(absl::string_view)) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  absl::StatusOr<std::vector<Request>> requests = parse(text);
  if (requests.ok()) return requests;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", requests.status().message()));
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

absl::StatusOr<std::vector<RequestPrefix>> ParsePrefixTrace(absl::string_view text) {
  std::vector<RequestPrefix> requests;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    if (line.empty()) continue;
    OCTAVO_ASSIGN_OR_RETURN(RequestPrefix request, ParsePrefixLine(line, number));
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError("it has no requests");
  return requests;
}

absl::StatusOr<std::vector<RequestLength>> ReadTraceFile(const std::string& path) {
  return ParseFile(path, ParseTrace);
}

absl::StatusOr<std::vector<RequestPrefix>> ReadPrefixTraceFile(const std::string& path) {
  return ParseFile(path, ParsePrefixTrace);
}

}  // namespace octavo::cli
