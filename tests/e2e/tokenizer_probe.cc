// Answers the tokenizer's questions for tests/e2e/test_tokenizer.py: one JSON object a line in, one
// out.
//   {"encode": TEXT, "parse_special": BOOL, "add_bos": BOOL}  ->  {"ids": [..]}  or  {"error":
//   MESSAGE}
//   {"decode": [ID, ..], "show_control": BOOL}  ->  {"pieces": [TEXT per id, then the end's]}
// tokenizer_probe MODEL.gguf [PRE_TOKENIZER [add_space_prefix]]: another pre-tokenizer than the
// file's puts every pattern to the test on one vocabulary.

#include <glog/logging.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/model/detokenizer.h"
#include "common/model/gguf.h"
#include "common/model/tokenizer.h"
#include "common/model/tokenizer_from_gguf.h"

namespace octavo {
namespace {

std::unique_ptr<Tokenizer> Load(int argc, char** argv) {
  CHECK(argc >= 2) << "usage: tokenizer_probe MODEL.gguf [PRE_TOKENIZER [add_space_prefix]]";
  const auto file = GgufFile::Open(argv[1]);
  CHECK(file.ok()) << file.status();
  auto spec = TokenizerSpecFromGguf(**file);
  CHECK(spec.ok()) << spec.status();
  if (argc >= 3) spec->pre_tokenizer = argv[2];
  if (argc >= 4) spec->add_space_prefix = true;
  auto tokenizer = Tokenizer::Create(*spec);
  CHECK(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

nlohmann::json Answer(const Tokenizer& tokenizer, const nlohmann::json& question) {
  if (question.contains("encode")) {
    const auto ids = tokenizer.Encode(question["encode"].get<std::string>(),
                                      {.parse_special = question.value("parse_special", false),
                                       .add_bos = question.value("add_bos", false)});
    if (!ids.ok()) return {{"error", std::string(ids.status().message())}};
    return {{"ids", *ids}};
  }
  Detokenizer detokenizer(&tokenizer, {.show_control = question.value("show_control", false)});
  nlohmann::json pieces = nlohmann::json::array();
  for (const TokenId id : question["decode"]) pieces.push_back(detokenizer.Append(id));
  pieces.push_back(detokenizer.Finish());
  return {{"pieces", pieces}};
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const auto tokenizer = octavo::Load(argc, argv);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << octavo::Answer(*tokenizer, nlohmann::json::parse(line)) << std::endl;
  }
}
