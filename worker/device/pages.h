#pragma once

// Anonymous memory straight from the system: page-aligned, zero, costing nothing until it is first
// touched.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace octavo {

class Pages {
 public:
  Pages() = default;
  // Address space for `bytes`. ResourceExhausted naming the size where the system refuses it.
  // `huge` asks for huge pages, for memory that is written whole and read in long runs.
  static absl::StatusOr<Pages> Map(size_t bytes, bool huge);
  Pages(Pages&& other) noexcept { *this = static_cast<Pages&&>(other); }
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace octavo
