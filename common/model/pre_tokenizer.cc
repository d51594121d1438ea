#include "common/model/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <glog/logging.h>
#include <pcre2.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace octavo {
namespace {

// As published, one alternative a line; the lines are joined as they stand.

// OpenAI's GPT-2 (encoder.py).
constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d)"
                                R"(| ?\p{L}+)"
                                R"(| ?\p{N}+)"
                                R"(| ?[^\s\p{L}\p{N}]+)"
                                R"(|\s+(?!\S))"
                                R"(|\s+)";

// SmolLM cuts out each digit, then cuts what lies between by GPT-2's pattern. In one pass: a digit
// ends a piece as the end of the text does, so no space joins it and spaces before it stay
// together.
constexpr char kSmolLmPattern[] = R"(\p{N})"
                                  R"(|'s|'t|'re|'ve|'m|'ll|'d)"
                                  R"(| ?\p{L}+)"
                                  R"(| ?[^\s\p{L}\p{N}]+)"
                                  R"(|\s+(?![^\s\p{N}]))"
                                  R"(|\s+)";

// Llama 3 (tokenizer.json), after OpenAI's cl100k.
constexpr char kLlama3Pattern[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                  R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                  R"(|\p{N}{1,3})"
                                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                  R"(|\s*[\r\n]+)"
                                  R"(|\s+(?!\S))"
                                  R"(|\s+)";

// Qwen 2 (tokenizer.json): Llama 3's with single digits.
constexpr char kQwen2Pattern[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
                                 R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
                                 R"(|\p{N})"
                                 R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                                 R"(|\s*[\r\n]+)"
                                 R"(|\s+(?!\S))"
                                 R"(|\s+)";

constexpr std::array<PreTokenizerRules, 7> kRules = {{
    {.name = "gpt2", .pattern = kGpt2Pattern},
    {.name = "gpt-2", .pattern = kGpt2Pattern},
    {.name = "smollm", .pattern = kSmolLmPattern},
    {.name = "llama-bpe",
     .pattern = kLlama3Pattern,
     .ignore_merges = true,
     .adds_bos_unsaid = true},
    {.name = "llama3", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos_unsaid = true},
    {.name = "llama-v3", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos_unsaid = true},
    {.name = "qwen2", .pattern = kQwen2Pattern, .normalize_nfc = true},
}};

// Unicode's White_Space, for use between brackets.
constexpr char kSpaces[] = R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a})"
                           R"(\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// `published` with \s and \S written out: PCRE2's own hold U+180E too, which is no space since
// Unicode 6.3.
std::string WithSpacesWrittenOut(absl::string_view published) {
  std::string pattern;
  bool in_brackets = false;
  for (size_t i = 0; i < published.size(); ++i) {
    const absl::string_view escape = published.substr(i, 2);
    if (escape == "\\s" || escape == "\\S") {
      CHECK(!in_brackets || escape == "\\s") << published;
      const char* const open = in_brackets ? "" : escape == "\\s" ? "[" : "[^";
      absl::StrAppend(&pattern, open, kSpaces, in_brackets ? "" : "]");
      ++i;
      continue;
    }
    if (published[i] == '[') in_brackets = true;
    if (published[i] == ']') in_brackets = false;
    pattern.push_back(published[i]);
  }
  return pattern;
}

std::string Pcre2Message(int code) {
  PCRE2_UCHAR message[256];
  if (pcre2_get_error_message(code, message, sizeof(message)) < 0) {
    return absl::StrCat("PCRE2 error ", code);
  }
  return reinterpret_cast<const char*>(message);
}

}  // namespace

absl::StatusOr<const PreTokenizerRules*> FindPreTokenizerRules(absl::string_view name) {
  for (const PreTokenizerRules& rules : kRules) {
    if (name == rules.name) return &rules;
  }
  return absl::UnimplementedError(absl::StrCat(
      "pre-tokenizer \"", name, "\" is not supported; supported are ",
      absl::StrJoin(kRules, ", ", [](std::string* out, const PreTokenizerRules& rules) {
        out->append(rules.name);
      })));
}

struct PreTokenizer::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  pcre2_code* const code;
};

struct PreTokenizer::Scratch::Data {
  explicit Data(const pcre2_code* code)
      : match(pcre2_match_data_create_from_pattern(code, nullptr)) {
    CHECK(match != nullptr) << "out of memory";
  }
  ~Data() { pcre2_match_data_free(match); }
  pcre2_match_data* const match;
};

PreTokenizer::Scratch::Scratch(std::unique_ptr<Data> data) : data_(std::move(data)) {}
PreTokenizer::Scratch::Scratch(Scratch&&) noexcept = default;
PreTokenizer::Scratch::~Scratch() = default;

PreTokenizer::PreTokenizer(const PreTokenizerRules* rules, std::string pattern,
                           std::unique_ptr<Code> code)
    : rules_(rules), pattern_(std::move(pattern)), code_(std::move(code)) {}
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(const PreTokenizerRules* rules) {
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  std::string pattern = WithSpacesWrittenOut(rules->pattern);
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &error_offset, nullptr);
  if (compiled == nullptr) {
    return absl::InternalError(absl::StrCat("the pattern of pre-tokenizer ", rules->name, ": ",
                                            Pcre2Message(error), " at offset ", error_offset));
  }
  auto code = std::make_unique<Code>(compiled);
  // Where the system forbids writing machine code, pcre2_match interprets the pattern instead,
  // about five times slower, to the same result.
  const int jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  LOG_IF(WARNING, jit != 0) << "pre-tokenizer " << rules->name
                            << " is interpreted, not compiled: " << Pcre2Message(jit);
  return std::unique_ptr<PreTokenizer>(
      new PreTokenizer(rules, std::move(pattern), std::move(code)));
}

PreTokenizer::Scratch PreTokenizer::MakeScratch() const {
  return Scratch(std::make_unique<Scratch::Data>(code_->code));
}

absl::Status PreTokenizer::Split(absl::string_view text, Scratch& scratch,
                                 absl::FunctionRef<void(absl::string_view)> word) const {
  pcre2_match_data* const match = scratch.data_->match;
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t begin = 0; begin < text.size();) {
    // Each call would check the whole text once more: quadratic.
    const int matched =
        pcre2_match(code_->code, subject, text.size(), begin, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (matched < 0) {
      return absl::InternalError(absl::StrCat("pre-tokenizer ", rules_->name, " failed at byte ",
                                              begin, " of ", text.size(), ": ",
                                              Pcre2Message(matched)));
    }
    const size_t end = pcre2_get_ovector_pointer(match)[1];
    CHECK_GT(end, begin) << "the pattern of " << rules_->name << " matches nothing";
    word(text.substr(begin, end - begin));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace octavo
