#pragma once

// A model file in GGUF, versions 2 and 3, little-endian, as read-only views into the mapped file:
// typed metadata and tensors. Format: ggml/docs/gguf.md. In comes a path (or bytes, in tests and
// fuzzing); out come values that were all checked once, here, so that nothing behind this room
// looks at an offset again. Tensor data is neither read nor copied.
//
// Thread rule: immutable after Open or Parse; any thread may read.
// Invariants:
// (1) Every view lies inside the file and lives exactly as long as this object (and, after Parse,
// the caller's bytes). (2) Keys are unique, tensor names are unique, tensors do not overlap, each
// holds rows × RowBytes(type, columns) bytes. (3) Memory used is proportional to the header that is
// really there, whatever the counts in it claim.
//
// A malformed file is refused with InvalidArgument, "byte OFFSET: what is wrong". A file cut short
// by somebody else *while* it is mapped still raises SIGBUS on access: replace model files by
// renaming, never in place.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tensor_type.h"

namespace octavo {

// Limits no real model comes near (Llama 3.1 405B: 1,138 tensors); they bound the work on a hostile
// header.
constexpr uint64_t kMaxGgufMetadataCount = 1 << 16;
constexpr uint64_t kMaxGgufTensorCount = 1 << 18;
constexpr uint64_t kMaxGgufKeyBytes = 65'535;     // gguf.md
constexpr uint64_t kMaxGgufTensorNameBytes = 64;  // gguf.md
constexpr uint32_t kMaxGgufDimensionCount = 4;    // gguf.md
constexpr uint64_t kMaxGgufAlignment = 1 << 20;

// Metadata value types, numbered as in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32", "string", …; "?" for a number that is none of them.
const char* GgufTypeName(GgufType type);

// A numeric array of the metadata, left in place. Metadata is not aligned, hence no std::span<const
// T>.
template <typename T>
class GgufArray {
 public:
  GgufArray() = default;
  explicit GgufArray(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  size_t size() const { return bytes_.size() / sizeof(T); }
  // REQUIRES: index < size().
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;  // size() elements, little-endian
};

// A string array of the metadata, left in place: each string is a u64 length and its bytes, so it
// is read forwards only. for (absl::string_view token : *file.GetStrings("tokenizer.ggml.tokens"))
// …
class GgufStringArray {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = absl::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const absl::string_view*;
    using reference = absl::string_view;

    Iterator() = default;
    explicit Iterator(const uint8_t* at) : at_(at) {}
    absl::string_view operator*() const {
      return absl::string_view(reinterpret_cast<const char*>(at_ + sizeof(uint64_t)), length());
    }
    Iterator& operator++() {
      at_ += sizeof(uint64_t) + length();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    uint64_t length() const {
      uint64_t value;
      std::memcpy(&value, at_, sizeof(value));
      return value;
    }
    const uint8_t* at_ = nullptr;
  };

  GgufStringArray() = default;
  // `bytes` holds exactly `size` strings, checked by the reader.
  GgufStringArray(size_t size, std::span<const uint8_t> bytes) : size_(size), bytes_(bytes) {}
  size_t size() const { return size_; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  size_t size_ = 0;
  std::span<const uint8_t> bytes_;
};

// One key of the metadata and where its value lies.
struct GgufEntry {
  absl::string_view key;
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  // of an array
  uint64_t count = 1;                     // elements of an array
  std::span<const uint8_t>
      value;  // the payload: no type tag, no length of an array; of a string only its characters
};

// A matrix, or a stack of them, as GGUF orders it: dims[0] runs fastest, so a row is dims[0]
// contiguous elements.
struct GgufTensor {
  absl::string_view name;
  TensorType type = TensorType::kF32;
  uint32_t dim_count = 0;                                  // 1 to kMaxGgufDimensionCount
  std::array<uint64_t, kMaxGgufDimensionCount> dims = {};  // those past dim_count are 1
  uint64_t columns = 0;           // dims[0], a multiple of the type's block_elements
  uint64_t rows = 0;              // the product of the other dims
  std::span<const uint8_t> data;  // [rows, RowBytes(type, columns)]
};

class GgufFile {
 public:
  // Maps the whole file read-only. NotFound or PermissionDenied naming the path where it cannot be
  // opened, InvalidArgument with path, offset and reason where it is malformed.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  // The same over the caller's bytes, which must outlive the result.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(std::span<const uint8_t> bytes);

  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;
  ~GgufFile();

  uint32_t version() const { return version_; }
  bool is_mapped() const {
    return mapping_ != nullptr;
  }  // opened, not parsed: pages that are dropped are read again from the file
  uint64_t alignment() const { return alignment_; }
  uint64_t file_bytes() const { return bytes_.size(); }
  uint64_t data_offset() const {
    return data_offset_;
  }  // of the first tensor's bytes; all before it is header

  // Metadata by key. Missing: NotFound naming the key. Another type: InvalidArgument naming key,
  // type and what was wanted. Integers come in any width and are refused where negative; floats in
  // either width.
  bool Has(absl::string_view key) const { return entry_by_key_.contains(key); }
  absl::StatusOr<uint64_t> GetU64(absl::string_view key) const;
  absl::StatusOr<float> GetF32(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<absl::string_view> GetString(absl::string_view key) const;
  absl::StatusOr<GgufStringArray> GetStrings(absl::string_view key) const;
  absl::StatusOr<GgufArray<int32_t>> GetI32s(absl::string_view key) const;  // i32 or u32 elements
  absl::StatusOr<GgufArray<float>> GetF32s(absl::string_view key) const;

  // The same, with a value for a key that is missing (never for one of the wrong type).
  absl::StatusOr<uint64_t> GetU64Or(absl::string_view key, uint64_t missing) const;
  absl::StatusOr<float> GetF32Or(absl::string_view key, float missing) const;
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool missing) const;
  absl::StatusOr<absl::string_view> GetStringOr(absl::string_view key,
                                                absl::string_view missing) const;

  // In file order.
  const std::vector<GgufEntry>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // Null where there is none. Borrowed.
  const GgufTensor* FindTensor(absl::string_view name) const;
  // NotFound naming the tensor.
  absl::StatusOr<const GgufTensor*> GetTensor(absl::string_view name) const;

  // Names the model in worker registration: a hash of every header byte (metadata and tensor
  // infos), the file size, and 64 bytes from each of up to 6 tensors, so that fine-tunes that
  // share a header differ. Not cryptographic. Reads the header and a page a sampled tensor: 0.7 ms
  // for SmolLM2-135M once the file is cached.
  uint64_t Fingerprint() const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  absl::StatusOr<const GgufEntry*> Find(absl::string_view key) const;

  std::span<const uint8_t> bytes_;
  void* mapping_ = nullptr;  // bytes_.data() where Open mapped it, else null
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t data_offset_ = 0;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<absl::string_view, size_t> entry_by_key_;
  absl::flat_hash_map<absl::string_view, size_t> tensor_by_name_;
};

}  // namespace octavo
