// Any bytes as a model file: refused, or a file whose every view may be read.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "common/model/model_tensors.h"
#include "glog/logging.h"

namespace octavo {
namespace {

// Reads each byte the view claims, so that the address sanitizer checks it.
uint64_t Sum(std::span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (uint8_t byte : bytes) sum += byte;
  return sum;
}

uint64_t ReadEverything(const GgufFile& file) {
  uint64_t sum = file.Fingerprint();
  for (const GgufEntry& entry : file.metadata()) {
    sum += Sum(entry.value);
    CHECK(file.Has(entry.key));
    // Every reader on every key: the wrong ones must refuse.
    (void)file.GetU64(entry.key);
    (void)file.GetF32(entry.key);
    (void)file.GetBool(entry.key);
    (void)file.GetString(entry.key);
    if (const auto strings = file.GetStrings(entry.key); strings.ok()) {
      size_t count = 0;
      for (absl::string_view text : *strings) {
        sum += text.size();
        ++count;
      }
      CHECK_EQ(count, strings->size());
    }
    if (const auto values = file.GetI32s(entry.key); values.ok()) {
      for (size_t i = 0; i < values->size(); ++i) sum += static_cast<uint32_t>((*values)[i]);
    }
    if (const auto values = file.GetF32s(entry.key); values.ok() && values->size() > 0) {
      sum += (*values)[values->size() - 1] > 0;
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    CHECK_EQ(tensor.data.size(), tensor.rows * RowBytes(tensor.type, tensor.columns));
    CHECK_EQ(file.FindTensor(tensor.name), &tensor);
    sum += Sum(tensor.data);
  }
  return sum;
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = octavo::GgufFile::Parse(std::span(data, size));
  if (!file.ok()) {
    CHECK(absl::IsInvalidArgument(file.status())) << file.status();
    return 0;
  }
  octavo::ReadEverything(**file);
  const auto config = octavo::ReadModelConfig(**file);
  if (config.ok()) CHECK(octavo::FindModelTensors(**file, *config).ok());
  return 0;
}
