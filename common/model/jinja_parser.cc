#include "common/model/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/jinja_expression_parser.h"
#include "common/model/jinja_lexer.h"
#include "common/model/jinja_limits.h"
#include "common/status.h"

namespace octavo::jinja {
namespace {

using StatementPointer = std::unique_ptr<Statement>;
using EndTags = std::initializer_list<absl::string_view>;

// Tags that Jinja has and this subset leaves out.
bool IsLeftOut(absl::string_view tag) {
  static const auto* tags = new absl::flat_hash_set<absl::string_view>{
      "block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug"};
  return tags->contains(tag);
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<std::unique_ptr<const Template>> Run() {
    auto parsed = std::make_unique<Template>();
    OCTAVO_ASSIGN_OR_RETURN(parsed->body, ParseBody({}));
    OCTAVO_RETURN_IF_ERROR(tokens_.UnknownName());
    return std::unique_ptr<const Template>(std::move(parsed));
  }

 private:
  StatementPointer New(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = tokens_.current().line;
    return statement;
  }

  // Statements up to one of `ends`, at which the cursor is left; up to the template's end when
  // there are none.
  absl::StatusOr<Body> ParseBody(EndTags ends) {
    ParseDepth depth(tokens_);
    OCTAVO_RETURN_IF_ERROR(tokens_.CheckDepth(tokens_.depth()));
    Body body;
    while (tokens_.current().kind != TokenKind::kEnd) {
      const Token& token = tokens_.current();
      if (token.kind == TokenKind::kText) {
        StatementPointer text = New(StatementKind::kText);
        text->text = token.text;
        tokens_.Advance();
        body.push_back(std::move(text));
      } else if (token.kind == TokenKind::kOutputBegin) {
        StatementPointer output = New(StatementKind::kOutput);
        tokens_.Advance();
        OCTAVO_ASSIGN_OR_RETURN(output->expression, tokens_.ParseTuple());
        OCTAVO_RETURN_IF_ERROR(tokens_.ExpectKind(TokenKind::kOutputEnd, "'}}'"));
        body.push_back(std::move(output));
      } else {
        OCTAVO_RETURN_IF_ERROR(tokens_.ExpectKind(TokenKind::kBlockBegin, "a tag"));
        const Token& tag = tokens_.current();
        if (tag.kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), tag.text) != ends.end()) {
          return body;
        }
        OCTAVO_RETURN_IF_ERROR(ParseStatement(ends, &body));
        OCTAVO_RETURN_IF_ERROR(tokens_.ExpectKind(TokenKind::kBlockEnd, "'%}'"));
      }
    }
    if (ends.size() == 0) return body;
    return SyntaxError(
        tokens_.current().line,
        absl::StrCat("the template ends where ", absl::StrJoin(ends, " or "), " is missing"));
  }

  // The rest of an opening tag, then its body up to one of `ends`.
  absl::StatusOr<Body> ParseBlock(EndTags ends) {
    tokens_.SkipOperator(":");
    OCTAVO_RETURN_IF_ERROR(tokens_.ExpectKind(TokenKind::kBlockEnd, "'%}'"));
    return ParseBody(ends);
  }

  absl::Status ParseStatement(EndTags ends, Body* body) {
    const Token tag = tokens_.current();
    if (tag.kind != TokenKind::kName) return tokens_.Unexpected("the name of a tag");
    absl::StatusOr<StatementPointer> statement;
    if (tag.text == "if") {
      statement = ParseIf();
    } else if (tag.text == "for") {
      statement = ParseFor();
    } else if (tag.text == "set") {
      statement = ParseSet();
    } else if (tag.text == "macro") {
      statement = ParseMacro();
    } else if (tag.text == "call") {
      statement = ParseCallBlock();
    } else if (tag.text == "filter") {
      statement = ParseFilterBlock();
    } else if (tag.text == "with") {
      statement = ParseWith();
    } else if (tag.text == "generation") {
      statement = ParseGeneration();
    } else if (tag.text == "break" || tag.text == "continue") {
      statement = ParseLoopControl();
    } else if (tag.text == "print") {
      return ParsePrint(body);
    } else if (IsLeftOut(tag.text)) {
      return SyntaxError(tag.line, absl::StrCat("the tag '", tag.text, "' is not supported"));
    } else {
      return SyntaxError(tag.line, absl::StrCat("unknown tag '", tag.text, "'",
                                                ends.size() == 0 ? "" : "; expected ",
                                                absl::StrJoin(ends, " or ")));
    }
    if (!statement.ok()) return statement.status();
    body->push_back(*std::move(statement));
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPointer> ParseIf() {
    StatementPointer statement = New(StatementKind::kIf);
    while (true) {
      tokens_.Advance();
      Branch& branch = statement->branches.emplace_back();
      OCTAVO_ASSIGN_OR_RETURN(branch.test, tokens_.ParseTuple(false));
      ++tokens_.conditional_depth();
      absl::StatusOr<Body> body = ParseBlock({"elif", "else", "endif"});
      --tokens_.conditional_depth();
      OCTAVO_ASSIGN_OR_RETURN(statement->branches.back().body, std::move(body));
      if (tokens_.current().text == "elif") continue;
      const bool has_else = tokens_.SkipName("else");
      if (has_else) {
        ++tokens_.conditional_depth();
        body = ParseBlock({"endif"});
        --tokens_.conditional_depth();
        OCTAVO_ASSIGN_OR_RETURN(statement->else_body, std::move(body));
      }
      tokens_.Advance();
      return statement;
    }
  }

  absl::StatusOr<StatementPointer> ParseFor() {
    StatementPointer statement = New(StatementKind::kFor);
    tokens_.Advance();
    OCTAVO_ASSIGN_OR_RETURN(statement->target, tokens_.ParseTarget(false, "in"));
    if (statement->target.kind == Target::Kind::kName && statement->target.name == "loop") {
      return SyntaxError(statement->line, "cannot assign to the special variable 'loop'");
    }
    if (!tokens_.SkipName("in")) return tokens_.Unexpected("'in'");
    OCTAVO_ASSIGN_OR_RETURN(statement->expression, tokens_.ParseTuple(false, "recursive"));
    if (tokens_.SkipName("if")) {
      OCTAVO_ASSIGN_OR_RETURN(statement->test, tokens_.ParseExpression());
    }
    statement->is_recursive = tokens_.SkipName("recursive");
    ++loop_depth_;
    absl::StatusOr<Body> body = ParseBlock({"endfor", "else"});
    --loop_depth_;
    OCTAVO_ASSIGN_OR_RETURN(statement->body, std::move(body));
    if (tokens_.SkipName("else")) {
      OCTAVO_ASSIGN_OR_RETURN(statement->else_body, ParseBlock({"endfor"}));
    }
    tokens_.Advance();
    return statement;
  }

  absl::StatusOr<StatementPointer> ParseSet() {
    StatementPointer statement = New(StatementKind::kSet);
    tokens_.Advance();
    OCTAVO_ASSIGN_OR_RETURN(statement->target, tokens_.ParseTarget(true, ""));
    if (tokens_.SkipOperator("=")) {
      OCTAVO_ASSIGN_OR_RETURN(statement->expression, tokens_.ParseTuple());
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    OCTAVO_ASSIGN_OR_RETURN(statement->filter, tokens_.ParseFilters(nullptr));
    OCTAVO_ASSIGN_OR_RETURN(statement->body, ParseBlock({"endset"}));
    tokens_.Advance();
    return statement;
  }

  // A body that is a function of its own: loops outside do not reach into it.
  absl::StatusOr<Body> ParseFunctionBody(Signature* signature, absl::string_view end) {
    if (signature != nullptr) tokens_.open_signatures().push_back(signature);
    const int outer_loops = std::exchange(loop_depth_, 0);
    absl::StatusOr<Body> body = ParseBlock({end});
    loop_depth_ = outer_loops;
    if (signature != nullptr) tokens_.open_signatures().pop_back();
    OCTAVO_RETURN_IF_ERROR(body.status());
    tokens_.Advance();
    return body;
  }

  absl::StatusOr<StatementPointer> ParseMacro() {
    StatementPointer statement = New(StatementKind::kMacro);
    tokens_.Advance();
    OCTAVO_ASSIGN_OR_RETURN(statement->text, tokens_.ParseTargetName());
    OCTAVO_ASSIGN_OR_RETURN(statement->signature, tokens_.ParseSignature());
    OCTAVO_ASSIGN_OR_RETURN(statement->body, ParseFunctionBody(&statement->signature, "endmacro"));
    return statement;
  }

  absl::StatusOr<StatementPointer> ParseCallBlock() {
    StatementPointer statement = New(StatementKind::kCallBlock);
    tokens_.Advance();
    if (tokens_.current().IsOperator("(")) {
      OCTAVO_ASSIGN_OR_RETURN(statement->signature, tokens_.ParseSignature());
    }
    OCTAVO_ASSIGN_OR_RETURN(statement->expression, tokens_.ParseExpression());
    if (statement->expression->kind != ExpressionKind::kCall) {
      return SyntaxError(statement->line, "a call block needs a call");
    }
    OCTAVO_ASSIGN_OR_RETURN(statement->body, ParseFunctionBody(&statement->signature, "endcall"));
    return statement;
  }

  absl::StatusOr<StatementPointer> ParseFilterBlock() {
    StatementPointer statement = New(StatementKind::kFilterBlock);
    tokens_.Advance();
    OCTAVO_ASSIGN_OR_RETURN(statement->filter, tokens_.ParseFilters(nullptr, true));
    OCTAVO_ASSIGN_OR_RETURN(statement->body, ParseBlock({"endfilter"}));
    tokens_.Advance();
    return statement;
  }

  absl::StatusOr<StatementPointer> ParseWith() {
    StatementPointer statement = New(StatementKind::kWith);
    tokens_.Advance();
    while (tokens_.current().kind != TokenKind::kBlockEnd) {
      if (!statement->targets.empty()) OCTAVO_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      OCTAVO_ASSIGN_OR_RETURN(Target target, tokens_.ParseTarget(false, ""));
      OCTAVO_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      OCTAVO_ASSIGN_OR_RETURN(ExpressionPointer value, tokens_.ParseExpression());
      statement->targets.push_back(std::move(target));
      statement->values.push_back(std::move(value));
    }
    OCTAVO_ASSIGN_OR_RETURN(statement->body, ParseBlock({"endwith"}));
    tokens_.Advance();
    return statement;
  }

  absl::StatusOr<StatementPointer> ParseGeneration() {
    StatementPointer statement = New(StatementKind::kScope);
    tokens_.Advance();
    OCTAVO_ASSIGN_OR_RETURN(statement->body, ParseFunctionBody(nullptr, "endgeneration"));
    return statement;
  }

  absl::StatusOr<StatementPointer> ParseLoopControl() {
    const Token& tag = tokens_.current();
    if (loop_depth_ == 0) {
      return SyntaxError(tag.line, absl::StrCat("'", tag.text, "' outside a loop"));
    }
    StatementPointer statement =
        New(tag.text == "break" ? StatementKind::kBreak : StatementKind::kContinue);
    tokens_.Advance();
    return statement;
  }

  absl::Status ParsePrint(Body* body) {
    tokens_.Advance();
    bool is_first = true;
    while (tokens_.current().kind != TokenKind::kBlockEnd) {
      if (!is_first) OCTAVO_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      is_first = false;
      StatementPointer output = New(StatementKind::kOutput);
      OCTAVO_ASSIGN_OR_RETURN(output->expression, tokens_.ParseExpression());
      body->push_back(std::move(output));
    }
    return absl::OkStatus();
  }

  ExpressionParser tokens_;
  int loop_depth_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Template>> ParseTemplate(absl::string_view source) {
  if (source.size() > kJinjaMaxSourceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the chat template has ", source.size(),
                                                   " bytes; at most ", kJinjaMaxSourceBytes,
                                                   " are allowed"));
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace octavo::jinja
