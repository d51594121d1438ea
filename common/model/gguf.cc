#include "common/model/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/status.h"

namespace octavo {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF values are read in place, as little-endian");

constexpr size_t kSampledTensors = 6;
constexpr size_t kSampledBytes = 64;

template <typename T>
T Load(std::span<const uint8_t> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

std::string TypeOf(const GgufEntry& entry) {
  if (entry.type != GgufType::kArray) return GgufTypeName(entry.type);
  return absl::StrCat("array of ", GgufTypeName(entry.element_type));
}

absl::Status WrongType(const GgufEntry& entry, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("metadata key \"", absl::CHexEscape(entry.key),
                                                 "\" is ", TypeOf(entry), "; it must be ", wanted));
}

// A signed integer of any width, widened; nothing for every other type.
std::optional<int64_t> LoadSigned(const GgufEntry& entry) {
  switch (entry.type) {
    case GgufType::kI8:
      return Load<int8_t>(entry.value);
    case GgufType::kI16:
      return Load<int16_t>(entry.value);
    case GgufType::kI32:
      return Load<int32_t>(entry.value);
    case GgufType::kI64:
      return Load<int64_t>(entry.value);
    default:
      return std::nullopt;
  }
}

// `missing` where the key is not there; the error or value of `found` otherwise.
template <typename T>
absl::StatusOr<T> Or(bool has, absl::StatusOr<T> found, T missing) {
  return has ? std::move(found) : absl::StatusOr<T>(missing);
}

// Four independent chains over 32-byte strides, so that the multiplications overlap: about 5 GB/s.
uint64_t HashBytes(std::span<const uint8_t> bytes, uint64_t seed) {
  std::array<uint64_t, 4> lanes = {seed, seed ^ 1, seed ^ 2, seed ^ 3};
  const auto mix = [&lanes](const uint8_t* stride) {
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      uint64_t word;
      std::memcpy(&word, stride + lane * sizeof(word), sizeof(word));
      lanes[lane] = Mix64(lanes[lane] ^ word);
    }
  };
  size_t at = 0;
  for (; at + sizeof(lanes) <= bytes.size(); at += sizeof(lanes)) mix(bytes.data() + at);
  std::array<uint8_t, sizeof(lanes)> tail = {};
  std::copy(bytes.begin() + at, bytes.end(), tail.begin());
  mix(tail.data());
  uint64_t hash = Mix64(seed ^ bytes.size());
  for (uint64_t lane : lanes) hash = Mix64(hash ^ lane);
  return hash;
}

absl::Status CannotOpen(const std::string& path, absl::string_view call) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", call, " model file ", path));
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "?";
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotOpen(path, "open");
  const absl::Cleanup closer = [fd] { close(fd); };  // a mapping outlives its descriptor
  struct stat status;
  if (fstat(fd, &status) != 0) return CannotOpen(path, "stat");
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("model file ", path, " is not a regular file"));
  }
  if (status.st_size == 0)
    return absl::InvalidArgumentError(absl::StrCat("model file ", path, " is empty"));
  const size_t size = static_cast<size_t>(status.st_size);
  void* mapping = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapping == MAP_FAILED) return CannotOpen(path, "map");

  auto file = Parse(std::span(static_cast<const uint8_t*>(mapping), size));
  if (!file.ok()) {
    munmap(mapping, size);
    return absl::Status(file.status().code(), absl::StrCat(path, ": ", file.status().message()));
  }
  (*file)->mapping_ = mapping;
  return file;
}

GgufFile::~GgufFile() {
  if (mapping_ != nullptr) munmap(mapping_, bytes_.size());
}

absl::StatusOr<const GgufEntry*> GgufFile::Find(absl::string_view key) const {
  const auto found = entry_by_key_.find(key);
  if (found == entry_by_key_.end()) {
    return absl::NotFoundError(absl::StrCat("metadata key \"", key, "\" is missing"));
  }
  return &metadata_[found->second];
}

absl::StatusOr<uint64_t> GgufFile::GetU64(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  switch (entry->type) {
    case GgufType::kU8:
      return Load<uint8_t>(entry->value);
    case GgufType::kU16:
      return Load<uint16_t>(entry->value);
    case GgufType::kU32:
      return Load<uint32_t>(entry->value);
    case GgufType::kU64:
      return Load<uint64_t>(entry->value);
    default:
      break;
  }
  const std::optional<int64_t> value = LoadSigned(*entry);
  if (!value.has_value()) return WrongType(*entry, "an integer");
  if (*value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata key \"", key, "\" is ", *value, "; it must not be negative"));
  }
  return static_cast<uint64_t>(*value);
}

absl::StatusOr<float> GgufFile::GetF32(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  if (entry->type == GgufType::kF32) return Load<float>(entry->value);
  if (entry->type == GgufType::kF64) {
    // Beyond the range of float the conversion would be undefined.
    const double value = Load<double>(entry->value);
    if (std::abs(value) <= std::numeric_limits<float>::max()) return static_cast<float>(value);
    return absl::InvalidArgumentError(absl::StrCat("metadata key \"", key, "\" is ", value,
                                                   "; it must be a number within float"));
  }
  return WrongType(*entry, "a float");
}

absl::StatusOr<bool> GgufFile::GetBool(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  if (entry->type != GgufType::kBool) return WrongType(*entry, "a bool");
  return entry->value[0] != 0;
}

absl::StatusOr<absl::string_view> GgufFile::GetString(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  if (entry->type != GgufType::kString) return WrongType(*entry, "a string");
  return absl::string_view(reinterpret_cast<const char*>(entry->value.data()), entry->value.size());
}

absl::StatusOr<GgufStringArray> GgufFile::GetStrings(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  if (entry->type != GgufType::kArray || entry->element_type != GgufType::kString) {
    return WrongType(*entry, "an array of strings");
  }
  return GgufStringArray(entry->count, entry->value);
}

absl::StatusOr<GgufArray<int32_t>> GgufFile::GetI32s(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  if (entry->type != GgufType::kArray ||
      (entry->element_type != GgufType::kI32 && entry->element_type != GgufType::kU32)) {
    return WrongType(*entry, "an array of i32");
  }
  return GgufArray<int32_t>(entry->value);
}

absl::StatusOr<GgufArray<float>> GgufFile::GetF32s(absl::string_view key) const {
  OCTAVO_ASSIGN_OR_RETURN(const GgufEntry* entry, Find(key));
  if (entry->type != GgufType::kArray || entry->element_type != GgufType::kF32) {
    return WrongType(*entry, "an array of f32");
  }
  return GgufArray<float>(entry->value);
}

absl::StatusOr<uint64_t> GgufFile::GetU64Or(absl::string_view key, uint64_t missing) const {
  return Or(Has(key), GetU64(key), missing);
}
absl::StatusOr<float> GgufFile::GetF32Or(absl::string_view key, float missing) const {
  return Or(Has(key), GetF32(key), missing);
}
absl::StatusOr<bool> GgufFile::GetBoolOr(absl::string_view key, bool missing) const {
  return Or(Has(key), GetBool(key), missing);
}
absl::StatusOr<absl::string_view> GgufFile::GetStringOr(absl::string_view key,
                                                        absl::string_view missing) const {
  return Or(Has(key), GetString(key), missing);
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = tensor_by_name_.find(name);
  return found == tensor_by_name_.end() ? nullptr : &tensors_[found->second];
}

absl::StatusOr<const GgufTensor*> GgufFile::GetTensor(absl::string_view name) const {
  if (const GgufTensor* tensor = FindTensor(name)) return tensor;
  return absl::NotFoundError(absl::StrCat("tensor \"", name, "\" is missing"));
}

uint64_t GgufFile::Fingerprint() const {
  const size_t header_bytes = std::min<uint64_t>(data_offset_, bytes_.size());
  uint64_t hash = HashBytes(bytes_.first(header_bytes), bytes_.size());
  const size_t stride = (tensors_.size() + kSampledTensors - 1) / kSampledTensors;
  for (size_t i = 0; i < tensors_.size(); i += stride) {
    // From the middle: first rows tell little (the first embedding often belongs to an unused
    // token).
    const std::span<const uint8_t> data = tensors_[i].data;
    const size_t size = std::min(kSampledBytes, data.size());
    hash = HashBytes(data.subspan((data.size() - size) / 2, size), hash);
  }
  return hash;
}

}  // namespace octavo
