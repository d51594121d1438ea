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

// Unicode's White_Space, written out, since PCRE2's \s has U+180E too. For use between brackets.
#define OCTAVO_SPACES                        \
  R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680})" \
  R"(\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define OCTAVO_SPACE "[" OCTAVO_SPACES "]"
#define OCTAVO_NOT_SPACE "[^" OCTAVO_SPACES "]"
#define OCTAVO_SYMBOL "[^" OCTAVO_SPACES "\\p{L}\\p{N}]"

// OpenAI's GPT-2 (encoder.py).
constexpr char kGpt2Pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?" OCTAVO_SYMBOL
                                "+"
                                "|" OCTAVO_SPACE "+(?!" OCTAVO_NOT_SPACE ")|" OCTAVO_SPACE "+";

// SmolLM cuts out each digit, then cuts what lies between by GPT-2's pattern. In one pass: a digit
// ends a piece as the end of the text does, so no space joins it and spaces before it are kept
// together.
constexpr char kSmolLmPattern[] =
    "\\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?" OCTAVO_SYMBOL
    "+"
    "|" OCTAVO_SPACE "+(?![^" OCTAVO_SPACES "\\p{N}])|" OCTAVO_SPACE "+";

// Llama 3 (tokenizer.json), after OpenAI's cl100k.
#define OCTAVO_CL100K(numbers)                                                              \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?" OCTAVO_SYMBOL \
  "+[\\r\\n]*|" OCTAVO_SPACE                                                                \
  "*[\\r\\n]+"                                                                              \
  "|" OCTAVO_SPACE "+(?!" OCTAVO_NOT_SPACE ")|" OCTAVO_SPACE "+"
constexpr char kLlama3Pattern[] = OCTAVO_CL100K("\\p{N}{1,3}");
constexpr char kQwen2Pattern[] = OCTAVO_CL100K("\\p{N}");

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

PreTokenizer::PreTokenizer(const PreTokenizerRules* rules, std::unique_ptr<Code> code)
    : rules_(rules), code_(std::move(code)) {}
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(const PreTokenizerRules* rules) {
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rules->pattern), PCRE2_ZERO_TERMINATED,
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
  return std::unique_ptr<PreTokenizer>(new PreTokenizer(rules, std::move(code)));
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
