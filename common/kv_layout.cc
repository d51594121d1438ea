#include "common/kv_layout.h"

#include "absl/strings/str_cat.h"
#include "common/random.h"

namespace octavo {

const char* KvTypeName(KvType type) { return type == KvType::kF16 ? "f16" : "bf16"; }

absl::StatusOr<KvType> ParseKvType(const std::string& name) {
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBF16;
  return absl::InvalidArgumentError(
      absl::StrCat("kv_dtype is \"", name, "\"; it must be f16 or bf16"));
}

absl::Status KvLayout::Validate() const {
  if (block_size < 1 || block_size > kMaxBlockSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_size is ", block_size, "; it must be 1 to ", kMaxBlockSize));
  }
  if (layer_count == 0 || kv_head_count == 0 || head_dim == 0) {
    return absl::InvalidArgumentError(absl::StrCat("layer_count ", layer_count, ", kv_head_count ",
                                                   kv_head_count, " and head_dim ", head_dim,
                                                   " must all be at least 1"));
  }
  return absl::OkStatus();
}

uint64_t KvLayout::Fingerprint() const {
  uint64_t hash = 0;
  for (uint64_t field : {uint64_t{block_size}, uint64_t{layer_count}, uint64_t{kv_head_count},
                         uint64_t{head_dim}, static_cast<uint64_t>(kv_type)}) {
    hash = Mix64(hash ^ field);
  }
  return hash;
}

}  // namespace octavo
