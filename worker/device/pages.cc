#include "worker/device/pages.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo {

absl::StatusOr<Pages> Pages::Map(size_t bytes, bool huge) {
  Pages pages;
  if (bytes == 0) return pages;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the system refused ", bytes, " bytes of address space: ", std::strerror(errno)));
  }
  // Best effort: without huge pages everything works, only slower.
  if (huge) madvise(data, bytes, MADV_HUGEPAGE);
  pages.data_ = data;
  pages.size_ = bytes;
  return pages;
}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace octavo
