#include "common/flags.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace octavo {
namespace {

absl::Status Set(absl::CommandLineFlag& flag, absl::string_view value) {
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag.Name(), " does not take \"", value,
                                                 "\": ", error.empty() ? flag.Help() : error));
}

}  // namespace

absl::StatusOr<CommandLine> ParseFlags(int argc, const char* const* argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--") {
      line.positional.insert(line.positional.end(), argv + i + 1, argv + argc);
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      line.positional.emplace_back(argument);
      continue;
    }
    if (!absl::ConsumePrefix(&argument, "--")) absl::ConsumePrefix(&argument, "-");
    const size_t equals = argument.find('=');
    const absl::string_view name = argument.substr(0, equals);
    if (name == "help" || name == "h") {
      line.help = true;
      continue;
    }
    if (name == "version") {
      line.version = true;
      continue;
    }
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    absl::Status set;
    if (flag == nullptr && equals == absl::string_view::npos && absl::StartsWith(name, "no")) {
      flag = absl::FindCommandLineFlag(name.substr(2));
      if (flag != nullptr && flag->IsOfType<bool>()) {
        line.flags.emplace_back(flag->Name());
        set = Set(*flag, "false");
        if (!set.ok()) return set;
        continue;
      }
      flag = nullptr;
    }
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag --", name, "; --help lists all flags"));
    }
    line.flags.emplace_back(flag->Name());
    if (equals != absl::string_view::npos) {
      set = Set(*flag, argument.substr(equals + 1));
    } else if (flag->IsOfType<bool>()) {
      set = Set(*flag, "true");
    } else if (i + 1 < argc) {
      set = Set(*flag, argv[++i]);
    } else {
      set = absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    }
    if (!set.ok()) return set;
  }
  return line;
}

bool IsFlagOf(const std::string& name, const std::vector<std::string>& origins) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  return flag != nullptr &&
         std::any_of(origins.begin(), origins.end(), [&](const std::string& origin) {
           return origin == absl::StrCat("--", name) || absl::StrContains(flag->Filename(), origin);
         });
}

std::string FlagsHelp(const std::string& about, const std::vector<std::string>& origins) {
  std::map<std::string, const absl::CommandLineFlag*> ours;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsFlagOf(std::string(name), origins)) ours.emplace(std::string(name), flag);
  }
  std::string text = absl::StrCat(about, "\n\nFlags:\n");
  for (const auto& [name, flag] : ours) {
    absl::StrAppend(&text, "  --", name, "\n      ",
                    absl::StrReplaceAll(flag->Help(), {{"\n", "\n      "}}));
    const std::string value = flag->DefaultValue();
    absl::StrAppend(&text, "\n      Default: ", value.empty() ? "none" : value, "\n");
  }
  absl::StrAppend(
      &text,
      "  --help\n      Print this and exit.\n  --version\n      Print the version and exit.\n");
  return text;
}

}  // namespace octavo
