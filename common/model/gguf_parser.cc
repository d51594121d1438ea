// Reads a GGUF header front to back with one cursor. Every length is compared with what is left of
// the file before it is used, every sum and product is checked for overflow, and counts are refused
// where even the smallest entries would not fit: so a hostile header can neither lead a view out of
// the file nor make this allocate more than a small multiple of the file's real header.

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/model/gguf.h"
#include "common/status.h"

namespace octavo {
namespace {

constexpr char kMagic[] = {'G', 'G', 'U', 'F'};
// u64 key length, a key of one character, u32 type, a value of one byte.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
// u64 name length, a name of one character, u32 dimension count, one u64 dimension, u32 type, u64
// offset.
constexpr uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;
// The part of a name that errors quote.
constexpr size_t kQuotedBytes = 80;

// Bytes of a scalar; 0 for strings, arrays and unknown types.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <typename... Parts>
absl::Status ErrorAt(uint64_t offset, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("byte ", offset, ": ", parts...));
}

// A name out of the file, safe to print.
std::string Quote(absl::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, kQuotedBytes)),
                      name.size() > kQuotedBytes ? "…\"" : "\"");
}

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(std::span<const uint8_t> bytes) : file_(new GgufFile), bytes_(bytes) {
    file_->bytes_ = bytes;
  }

  absl::StatusOr<std::unique_ptr<GgufFile>> Parse() {
    uint64_t tensor_count = 0;
    uint64_t metadata_count = 0;
    OCTAVO_RETURN_IF_ERROR(ReadPreamble(tensor_count, metadata_count));
    for (uint64_t i = 0; i < metadata_count; ++i) OCTAVO_RETURN_IF_ERROR(ReadEntry());
    OCTAVO_RETURN_IF_ERROR(ReadAlignment());
    std::vector<uint64_t> offsets;  // [tensor_count], relative to the data section
    for (uint64_t i = 0; i < tensor_count; ++i) OCTAVO_RETURN_IF_ERROR(ReadTensorInfo(offsets));
    file_->data_offset_ = (at_ + file_->alignment_ - 1) / file_->alignment_ * file_->alignment_;
    OCTAVO_RETURN_IF_ERROR(PlaceTensors(offsets));
    return std::move(file_);
  }

 private:
  uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  absl::Status Read(absl::string_view what, T& value) {
    if (left() < sizeof(T)) {
      return ErrorAt(at_, "the file ends within ", what, " (", sizeof(T), " bytes, ", left(),
                     " left)");
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return absl::OkStatus();
  }

  absl::Status ReadSpan(absl::string_view what, uint64_t size, std::span<const uint8_t>& span) {
    if (left() < size) {
      return ErrorAt(at_, "the file ends within ", what, " (", size, " bytes, ", left(), " left)");
    }
    span = bytes_.subspan(at_, size);
    at_ += size;
    return absl::OkStatus();
  }

  absl::Status ReadString(absl::string_view what, std::span<const uint8_t>& characters) {
    uint64_t length = 0;
    OCTAVO_RETURN_IF_ERROR(Read(absl::StrCat("the length of ", what), length));
    return ReadSpan(what, length, characters);
  }

  // A key or tensor name: 1 to `limit` characters.
  absl::Status ReadName(absl::string_view what, uint64_t limit, absl::string_view& name) {
    const uint64_t start = at_;
    uint64_t length = 0;
    OCTAVO_RETURN_IF_ERROR(Read(absl::StrCat("the length of ", what), length));
    if (length < 1 || length > limit) {
      return ErrorAt(start, what, " has ", length, " bytes; it must have 1 to ", limit);
    }
    std::span<const uint8_t> characters;
    OCTAVO_RETURN_IF_ERROR(ReadSpan(what, length, characters));
    name = absl::string_view(reinterpret_cast<const char*>(characters.data()), characters.size());
    return absl::OkStatus();
  }

  absl::Status ReadCount(absl::string_view what, uint64_t limit, uint64_t& count) {
    const uint64_t start = at_;
    OCTAVO_RETURN_IF_ERROR(Read(what, count));
    if (count > limit) return ErrorAt(start, what, " is ", count, "; at most ", limit, " are read");
    return absl::OkStatus();
  }

  absl::Status ReadPreamble(uint64_t& tensor_count, uint64_t& metadata_count) {
    std::span<const uint8_t> magic;
    OCTAVO_RETURN_IF_ERROR(ReadSpan("the magic", sizeof(kMagic), magic));
    if (std::memcmp(magic.data(), kMagic, sizeof(kMagic)) != 0) {
      return ErrorAt(0, "not a GGUF file: it does not begin with \"GGUF\"");
    }
    OCTAVO_RETURN_IF_ERROR(Read("the version", file_->version_));
    if (file_->version_ == 0x02000000 || file_->version_ == 0x03000000) {
      return ErrorAt(4, "the file is big-endian; convert it to little-endian");
    }
    if (file_->version_ != 2 && file_->version_ != 3) {
      return ErrorAt(4, "GGUF version ", file_->version_, "; versions 2 and 3 are read");
    }
    OCTAVO_RETURN_IF_ERROR(ReadCount("the tensor count", kMaxGgufTensorCount, tensor_count));
    OCTAVO_RETURN_IF_ERROR(ReadCount("the metadata count", kMaxGgufMetadataCount, metadata_count));
    if (metadata_count * kMinEntryBytes + tensor_count * kMinTensorInfoBytes > left()) {
      return ErrorAt(8, tensor_count, " tensors and ", metadata_count,
                     " metadata entries cannot fit in the ", left(), " bytes left");
    }
    file_->metadata_.reserve(metadata_count);
    file_->entry_by_key_.reserve(metadata_count);
    file_->tensors_.reserve(tensor_count);
    file_->tensor_by_name_.reserve(tensor_count);
    return absl::OkStatus();
  }

  absl::Status ReadType(absl::string_view what, GgufType& type) {
    const uint64_t start = at_;
    uint32_t number = 0;
    OCTAVO_RETURN_IF_ERROR(Read(what, number));
    if (number > static_cast<uint32_t>(GgufType::kF64)) {
      return ErrorAt(start, what, " is ", number, ", which is no GGUF value type (0 to 12)");
    }
    type = static_cast<GgufType>(number);
    return absl::OkStatus();
  }

  absl::Status ReadEntry() {
    GgufEntry entry;
    const uint64_t start = at_;
    OCTAVO_RETURN_IF_ERROR(ReadName("a metadata key", kMaxGgufKeyBytes, entry.key));
    if (!file_->entry_by_key_.emplace(entry.key, file_->metadata_.size()).second) {
      return ErrorAt(start, "the metadata key ", Quote(entry.key), " is there twice");
    }
    const std::string what = absl::StrCat("the value of ", Quote(entry.key));
    OCTAVO_RETURN_IF_ERROR(ReadType(absl::StrCat("the type of ", Quote(entry.key)), entry.type));
    if (entry.type == GgufType::kArray) {
      OCTAVO_RETURN_IF_ERROR(ReadArray(what, entry));
    } else if (entry.type == GgufType::kString) {
      OCTAVO_RETURN_IF_ERROR(ReadString(what, entry.value));
    } else {
      OCTAVO_RETURN_IF_ERROR(ReadScalars(what, entry.type, 1, entry.value));
    }
    file_->metadata_.push_back(entry);
    return absl::OkStatus();
  }

  absl::Status ReadScalars(absl::string_view what, GgufType type, uint64_t count,
                           std::span<const uint8_t>& value) {
    const uint64_t start = at_;
    if (count > left() / ScalarBytes(type)) {
      return ErrorAt(start, what, " has ", count, " elements of ", ScalarBytes(type), " bytes; ",
                     left(), " bytes are left");
    }
    OCTAVO_RETURN_IF_ERROR(ReadSpan(what, count * ScalarBytes(type), value));
    if (type != GgufType::kBool) return absl::OkStatus();
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i] > 1)
        return ErrorAt(start + i, what, " is a bool of ", value[i], "; it must be 0 or 1");
    }
    return absl::OkStatus();
  }

  absl::Status ReadArray(absl::string_view what, GgufEntry& entry) {
    const uint64_t start = at_;
    OCTAVO_RETURN_IF_ERROR(
        ReadType(absl::StrCat("the element type of ", what), entry.element_type));
    if (entry.element_type == GgufType::kArray) {
      return ErrorAt(start, what, " is an array of arrays, which is not read");
    }
    OCTAVO_RETURN_IF_ERROR(Read(absl::StrCat("the element count of ", what), entry.count));
    if (entry.element_type != GgufType::kString) {
      return ReadScalars(what, entry.element_type, entry.count, entry.value);
    }
    if (entry.count > left() / sizeof(uint64_t)) {
      return ErrorAt(start, what, " has ", entry.count, " strings; ", left(), " bytes are left");
    }
    const uint64_t first = at_;
    for (uint64_t i = 0; i < entry.count; ++i) {
      uint64_t length = 0;
      std::memcpy(&length, bytes_.data() + at_, std::min<uint64_t>(sizeof(length), left()));
      if (left() < sizeof(length) || left() - sizeof(length) < length) {
        return ErrorAt(at_, "the file ends within string ", i, " of ", what);
      }
      at_ += sizeof(length) + length;
    }
    entry.value = bytes_.subspan(first, at_ - first);
    return absl::OkStatus();
  }

  absl::Status ReadAlignment() {
    if (!file_->Has("general.alignment")) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(file_->alignment_, file_->GetU64("general.alignment"));
    const uint64_t alignment = file_->alignment_;
    if (alignment < 8 || alignment > kMaxGgufAlignment || (alignment & (alignment - 1)) != 0) {
      const GgufEntry& entry = file_->metadata_[file_->entry_by_key_["general.alignment"]];
      return ErrorAt(entry.value.data() - bytes_.data(), "general.alignment is ", alignment,
                     "; it must be a power of two from 8 to ", kMaxGgufAlignment);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensorInfo(std::vector<uint64_t>& offsets) {
    GgufTensor tensor;
    const uint64_t start = at_;
    OCTAVO_RETURN_IF_ERROR(ReadName("a tensor name", kMaxGgufTensorNameBytes, tensor.name));
    if (!file_->tensor_by_name_.emplace(tensor.name, file_->tensors_.size()).second) {
      return ErrorAt(start, "the tensor ", Quote(tensor.name), " is there twice");
    }
    OCTAVO_RETURN_IF_ERROR(ReadShape(tensor));
    const uint64_t type_at = at_;
    uint32_t type = 0;
    OCTAVO_RETURN_IF_ERROR(Read(absl::StrCat("the type of ", Quote(tensor.name)), type));
    if (!IsKnownTensorType(type)) {
      return ErrorAt(
          type_at, "the tensor ", Quote(tensor.name), " has type number ", type,
          "; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are read");
    }
    tensor.type = static_cast<TensorType>(type);
    const TensorTypeTraits traits = TraitsOf(tensor.type);
    if (tensor.columns % traits.block_elements != 0) {
      return ErrorAt(type_at, "the tensor ", Quote(tensor.name), " has rows of ", tensor.columns,
                     " elements; ", traits.name, " needs a multiple of ", traits.block_elements);
    }
    uint64_t offset = 0;
    const uint64_t offset_at = at_;
    OCTAVO_RETURN_IF_ERROR(Read(absl::StrCat("the offset of ", Quote(tensor.name)), offset));
    if (offset % file_->alignment_ != 0) {
      return ErrorAt(offset_at, "the tensor ", Quote(tensor.name), " has offset ", offset,
                     ", which is no multiple of the alignment ", file_->alignment_);
    }
    file_->tensors_.push_back(tensor);
    offsets.push_back(offset);
    return absl::OkStatus();
  }

  absl::Status ReadShape(GgufTensor& tensor) {
    const uint64_t start = at_;
    OCTAVO_RETURN_IF_ERROR(
        Read(absl::StrCat("the shape of ", Quote(tensor.name)), tensor.dim_count));
    if (tensor.dim_count < 1 || tensor.dim_count > kMaxGgufDimensionCount) {
      return ErrorAt(start, "the tensor ", Quote(tensor.name), " has ", tensor.dim_count,
                     " dimensions; it must have 1 to ", kMaxGgufDimensionCount);
    }
    tensor.dims.fill(1);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor.dim_count; ++i) {
      const uint64_t dim_at = at_;
      OCTAVO_RETURN_IF_ERROR(
          Read(absl::StrCat("the shape of ", Quote(tensor.name)), tensor.dims[i]));
      // The element count bounds every later product: at most 4 bytes an element, far below 2^64.
      if (tensor.dims[i] == 0 || tensor.dims[i] > (uint64_t{1} << 60) / elements) {
        return ErrorAt(dim_at, "the tensor ", Quote(tensor.name), " has dimension ", i, " of ",
                       tensor.dims[i],
                       "; dimensions must be at least 1 and their product at most 2^60");
      }
      elements *= tensor.dims[i];
    }
    tensor.columns = tensor.dims[0];
    tensor.rows = elements / tensor.columns;
    return absl::OkStatus();
  }

  // Gives every tensor its bytes and refuses those that leave the file or share any.
  absl::Status PlaceTensors(const std::vector<uint64_t>& offsets) {
    const uint64_t data_bytes =
        bytes_.size() > file_->data_offset_ ? bytes_.size() - file_->data_offset_ : 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& tensor = file_->tensors_[i];
      const uint64_t size = tensor.rows * RowBytes(tensor.type, tensor.columns);
      if (offsets[i] > data_bytes || size > data_bytes - offsets[i]) {
        return ErrorAt(bytes_.size(), "the file ends within the tensor ", Quote(tensor.name), " (",
                       size, " bytes at ", offsets[i], " of the data section, which has ",
                       data_bytes, "): it is cut short or damaged");
      }
      tensor.data = bytes_.subspan(file_->data_offset_ + offsets[i], size);
    }
    std::vector<const GgufTensor*> in_order;
    in_order.reserve(offsets.size());
    for (const GgufTensor& tensor : file_->tensors_) in_order.push_back(&tensor);
    std::sort(in_order.begin(), in_order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->data.data() < b->data.data();
    });
    for (size_t i = 1; i < in_order.size(); ++i) {
      const GgufTensor& before = *in_order[i - 1];
      const GgufTensor& tensor = *in_order[i];
      if (before.data.data() + before.data.size() > tensor.data.data()) {
        return ErrorAt(tensor.data.data() - bytes_.data(), "the tensors ", Quote(before.name),
                       " and ", Quote(tensor.name), " overlap");
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<GgufFile> file_;
  const std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;  // the cursor; at_ <= bytes_.size()
};

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(std::span<const uint8_t> bytes) {
  return GgufParser(bytes).Parse();
}

}  // namespace octavo
