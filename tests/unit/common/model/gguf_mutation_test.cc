// Damages a small file in every way that is cheap to enumerate: what is left must be refused or
// still obey GgufFile's invariants.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/model/gguf.h"
#include "common/model/model_config.h"
#include "common/model/model_tensors.h"
#include "common/random.h"
#include "tests/unit/common/model/gguf_builder.h"

namespace octavo {
namespace {

std::string WithEveryKindOfValue() {
  GgufBuilder builder = TinyLlama();
  builder.Strings("tokenizer.ggml.tokens", {"a", "b", "longer"});
  builder.Array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {1, 1, 3});
  builder.Array<float>("tokenizer.ggml.scores", GgufType::kF32, {0.0f, -1.0f, -2.0f});
  builder.Bool("tokenizer.ggml.add_bos_token", 1).U32("general.alignment", 32);
  return builder.Build();
}

// `view` lies inside `bytes`.
bool Within(std::span<const uint8_t> bytes, std::span<const uint8_t> view) {
  return view.data() >= bytes.data() && view.data() + view.size() <= bytes.data() + bytes.size();
}

// Parses `bytes` at the end of a block of its own, so that the address sanitizer sees a read past
// it, and checks what came out. Whether the file was taken.
bool Survives(const std::string& bytes) {
  const std::vector<uint8_t> tight(bytes.begin(), bytes.end());
  const auto file = GgufFile::Parse(tight);
  if (!file.ok()) {
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(file.status().message().empty());
    return false;
  }
  for (const GgufEntry& entry : (*file)->metadata()) {
    EXPECT_TRUE(Within(tight, entry.value));
    if (entry.type == GgufType::kArray && entry.element_type == GgufType::kString) {
      const GgufStringArray strings = *(*file)->GetStrings(entry.key);
      EXPECT_EQ(static_cast<size_t>(std::distance(strings.begin(), strings.end())), strings.size());
    }
  }
  for (const GgufTensor& tensor : (*file)->tensors()) {
    EXPECT_EQ(tensor.data.size(), tensor.rows * RowBytes(tensor.type, tensor.columns));
    EXPECT_TRUE(Within(tight, tensor.data));
  }
  (*file)->Fingerprint();
  const auto config = ReadModelConfig(**file);
  EXPECT_TRUE(!config.ok() || FindModelTensors(**file, *config).ok());
  return true;
}

TEST(GgufMutationTest, TheUndamagedFileIsAWholeModel) {
  const std::string bytes = WithEveryKindOfValue();
  EXPECT_TRUE(Survives(bytes));
  const auto config = ReadModelConfig(**GgufFile::Parse(BytesOf(bytes)));
  EXPECT_TRUE(config.ok()) << config.status();
}

TEST(GgufMutationTest, EveryTruncationIsRefused) {
  const std::string bytes = WithEveryKindOfValue();
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(Survives(bytes.substr(0, size))) << "at " << size;
  }
}

TEST(GgufMutationTest, EveryFlippedHeaderBitIsSurvived) {
  const std::string bytes = WithEveryKindOfValue();
  const size_t header = (*GgufFile::Parse(BytesOf(bytes)))->data_offset();
  size_t taken = 0;
  for (size_t bit = 0; bit < header * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= 1 << (bit % 8);
    taken += Survives(damaged);
    ASSERT_FALSE(HasFailure()) << "bit " << bit;
  }
  // Most bits belong to names and values, which parse as others; some must be refused.
  EXPECT_LT(taken, header * 8);
}

TEST(GgufMutationTest, EveryHeaderWordSetToAnExtremeIsSurvived) {
  const std::string bytes = WithEveryKindOfValue();
  const size_t header = (*GgufFile::Parse(BytesOf(bytes)))->data_offset();
  for (uint64_t extreme : {uint64_t{0}, uint64_t{1}, uint64_t{0x7fffffffffffffff}, ~uint64_t{0}}) {
    for (size_t at = 0; at + sizeof(extreme) <= header; ++at) {
      std::string damaged = bytes;
      std::memcpy(damaged.data() + at, &extreme, sizeof(extreme));
      Survives(damaged);
      ASSERT_FALSE(HasFailure()) << extreme << " at " << at;
    }
  }
}

TEST(GgufMutationTest, RandomDamageIsSurvived) {
  const std::string bytes = WithEveryKindOfValue();
  const size_t header = (*GgufFile::Parse(BytesOf(bytes)))->data_offset();
  for (uint64_t run = 0; run < 20'000; ++run) {
    std::string damaged = bytes;
    const uint32_t changes = 1 + RandomBits(1, run, 0) % 8;
    for (uint32_t i = 0; i < changes; ++i) {
      damaged[RandomBits(2, run, i) % header] = static_cast<char>(RandomBits(3, run, i));
    }
    Survives(damaged);
    ASSERT_FALSE(HasFailure()) << "run " << run;
  }
}

}  // namespace
}  // namespace octavo
