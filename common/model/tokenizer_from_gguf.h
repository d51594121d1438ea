#pragma once

// Reads what a tokenizer is made of from a GGUF file's `tokenizer.ggml.*` metadata
// (ggml/docs/gguf.md). Pure; the spec owns its strings and outlives the file. What the values mean
// together is checked by Tokenizer::Create.

#include "absl/status/statusor.h"
#include "common/model/gguf.h"
#include "common/model/tokenizer_spec.h"

namespace octavo {

// NotFound naming the key if a needed one is missing (model, pre, tokens, merges); InvalidArgument
// naming key and value if one has another type or lies outside its range.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);

}  // namespace octavo
