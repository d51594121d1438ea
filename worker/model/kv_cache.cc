#include "worker/model/kv_cache.h"

#include "absl/memory/memory.h"
#include "common/status.h"

namespace octavo {

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Backend& backend, const KvLayout& layout,
                                                         uint32_t num_blocks) {
  OCTAVO_ASSIGN_OR_RETURN(const KvPoolId pool, backend.CreateKvPool(layout, num_blocks));
  return absl::WrapUnique(new KvCache(backend, layout, num_blocks, pool));
}

}  // namespace octavo
