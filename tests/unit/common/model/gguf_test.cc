#include "common/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/unit/common/model/gguf_builder.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// The message with which `bytes` is refused; "" if it is not.
std::string Refusal(const std::string& bytes) {
  const auto file = GgufFile::Parse(BytesOf(bytes));
  if (file.ok()) return "";
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), ::testing::StartsWith("byte "));
  return std::string(file.status().message());
}

std::string WithU64(std::string bytes, size_t offset, uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

TEST(GgufTest, ReadsEveryScalarType) {
  GgufBuilder builder;
  builder.Scalar<uint8_t>("u8", GgufType::kU8, 200).Scalar<int8_t>("i8", GgufType::kI8, 100);
  builder.Scalar<uint16_t>("u16", GgufType::kU16, 60'000)
      .Scalar<int16_t>("i16", GgufType::kI16, 30'000);
  builder.Scalar<uint32_t>("u32", GgufType::kU32, 4'000'000'000)
      .Scalar<int32_t>("i32", GgufType::kI32, 7);
  builder.Scalar<uint64_t>("u64", GgufType::kU64, 1ull << 63)
      .Scalar<int64_t>("i64", GgufType::kI64, 9);
  builder.F32("f32", 0.25f).Scalar<double>("f64", GgufType::kF64, 0.5);
  builder.Bool("yes", 1).Bool("no", 0).String("text", "page").String("empty", "");
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->GetU64("u8"), 200u);
  EXPECT_EQ(*(*file)->GetU64("i8"), 100u);
  EXPECT_EQ(*(*file)->GetU64("u16"), 60'000u);
  EXPECT_EQ(*(*file)->GetU64("i16"), 30'000u);
  EXPECT_EQ(*(*file)->GetU64("u32"), 4'000'000'000u);
  EXPECT_EQ(*(*file)->GetU64("i32"), 7u);
  EXPECT_EQ(*(*file)->GetU64("u64"), 1ull << 63);
  EXPECT_EQ(*(*file)->GetU64("i64"), 9u);
  EXPECT_EQ(*(*file)->GetF32("f32"), 0.25f);
  EXPECT_EQ(*(*file)->GetF32("f64"), 0.5f);
  EXPECT_TRUE(*(*file)->GetBool("yes"));
  EXPECT_FALSE(*(*file)->GetBool("no"));
  EXPECT_EQ(*(*file)->GetString("text"), "page");
  EXPECT_EQ(*(*file)->GetString("empty"), "");
  EXPECT_EQ((*file)->metadata().size(), 14u);
  EXPECT_EQ((*file)->tensors().size(), 0u);
}

TEST(GgufTest, ReadsArraysInPlace) {
  GgufBuilder builder;
  builder.String("odd", "x");  // so that what follows is not aligned
  builder.Strings("tokens", {"a", "", "three"}).Strings("none", {});
  builder.Array<int32_t>("types", GgufType::kI32, {1, -2, 3});
  builder.Array<float>("scores", GgufType::kF32, {0.5f, -1.0f});
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  const GgufStringArray tokens = *(*file)->GetStrings("tokens");
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_THAT(std::vector<absl::string_view>(tokens.begin(), tokens.end()),
              ElementsAre("a", "", "three"));
  EXPECT_EQ((*file)->GetStrings("none")->size(), 0u);
  EXPECT_TRUE((*file)->GetStrings("none")->begin() == (*file)->GetStrings("none")->end());
  const GgufArray<int32_t> types = *(*file)->GetI32s("types");
  ASSERT_EQ(types.size(), 3u);
  EXPECT_EQ(types[1], -2);
  const GgufArray<float> scores = *(*file)->GetF32s("scores");
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[1], -1.0f);
}

TEST(GgufTest, NamesKeyAndTypeWhenMetadataIsNotWhatWasAskedFor) {
  GgufBuilder builder;
  builder.String("text", "page")
      .Scalar<int32_t>("minus", GgufType::kI32, -3)
      .Strings("tokens", {"a"});
  builder.Scalar<double>("huge", GgufType::kF64, 1e300);
  builder.Scalar<double>("nan", GgufType::kF64, std::numeric_limits<double>::quiet_NaN());
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->GetU64("text").status().message(),
            "metadata key \"text\" is string; it must be an integer");
  EXPECT_EQ((*file)->GetU64("minus").status().message(),
            "metadata key \"minus\" is -3; it must not be negative");
  EXPECT_EQ((*file)->GetString("tokens").status().message(),
            "metadata key \"tokens\" is array of string; it must be a string");
  EXPECT_EQ((*file)->GetF32("minus").status().message(),
            "metadata key \"minus\" is i32; it must be a float");
  EXPECT_EQ((*file)->GetBool("text").status().message(),
            "metadata key \"text\" is string; it must be a bool");
  EXPECT_FALSE((*file)->GetF32("huge").ok());
  EXPECT_FALSE((*file)->GetF32("nan").ok());
  EXPECT_FALSE((*file)->GetStrings("text").ok());
  EXPECT_FALSE((*file)->GetI32s("tokens").ok());
  EXPECT_FALSE((*file)->GetF32s("tokens").ok());
  EXPECT_EQ((*file)->GetU64("absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*file)->GetU64("absent").status().message(), "metadata key \"absent\" is missing");
}

TEST(GgufTest, DefaultsStandInForMissingKeysButNotForWrongOnes) {
  GgufBuilder builder;
  builder.String("text", "page").U32("count", 5);
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->GetU64Or("count", 1), 5u);
  EXPECT_EQ(*(*file)->GetU64Or("absent", 1), 1u);
  EXPECT_EQ(*(*file)->GetF32Or("absent", 1.5f), 1.5f);
  EXPECT_TRUE(*(*file)->GetBoolOr("absent", true));
  EXPECT_EQ(*(*file)->GetStringOr("absent", "none"), "none");
  EXPECT_EQ((*file)->GetU64Or("text", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GgufTest, PlacesTensorsWithColumnsFirst) {
  GgufBuilder builder;
  builder.Tensor("a", TensorType::kF32, {3});
  builder.Tensor("b", TensorType::kQ4_1, {64, 5, 2});
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  const GgufTensor* a = *(*file)->GetTensor("a");
  EXPECT_EQ(a->columns, 3u);
  EXPECT_EQ(a->rows, 1u);
  EXPECT_EQ(a->data.size(), 12u);
  EXPECT_EQ(a->data[4], 4);
  const GgufTensor* b = *(*file)->GetTensor("b");
  EXPECT_EQ(b->type, TensorType::kQ4_1);
  EXPECT_EQ(b->columns, 64u);
  EXPECT_EQ(b->rows, 10u);
  EXPECT_EQ(b->data.size(), 10u * 2 * 20);
  EXPECT_EQ(b->data[0], 1);
  EXPECT_EQ((b->data.data() - BytesOf(bytes).data()) % 32, 0);
  EXPECT_EQ((*file)->FindTensor("c"), nullptr);
  EXPECT_EQ((*file)->GetTensor("c").status().message(), "tensor \"c\" is missing");
}

TEST(GgufTest, FollowsTheFilesAlignment) {
  GgufBuilder builder;
  builder.alignment = 128;
  builder.U32("general.alignment", 128)
      .Tensor("a", TensorType::kF32, {1})
      .Tensor("b", TensorType::kF32, {1});
  const std::string bytes = builder.Build();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->data_offset() % 128, 0u);
  EXPECT_EQ((*file)->FindTensor("b")->data.data() - (*file)->FindTensor("a")->data.data(), 128);
}

TEST(GgufTest, ReadsVersion2AndRefusesOthers) {
  GgufBuilder builder;
  builder.version = 2;
  EXPECT_EQ(Refusal(builder.Build()), "");
  builder.version = 1;
  EXPECT_EQ(Refusal(builder.Build()), "byte 4: GGUF version 1; versions 2 and 3 are read");
  builder.version = 0x03000000;
  EXPECT_EQ(Refusal(builder.Build()),
            "byte 4: the file is big-endian; convert it to little-endian");
}

TEST(GgufTest, RefusesWhatIsNoGguf) {
  EXPECT_EQ(Refusal("PK\3\4 a zip, not a model"),
            "byte 0: not a GGUF file: it does not begin with \"GGUF\"");
  EXPECT_EQ(Refusal(""), "byte 0: the file ends within the magic (4 bytes, 0 left)");
}

TEST(GgufTest, RefusesCountsThatCannotFit) {
  GgufBuilder builder;
  builder.U32("k", 1);
  builder.extra_metadata_count = 1000;
  EXPECT_EQ(Refusal(builder.Build()),
            "byte 8: 0 tensors and 1001 metadata entries cannot fit in the 17 bytes left");
  const std::string bytes = GgufBuilder().Build();
  EXPECT_EQ(Refusal(WithU64(bytes, 8, ~0ull)),
            "byte 8: the tensor count is 18446744073709551615; at most 262144 are read");
  EXPECT_EQ(Refusal(WithU64(bytes, 16, 1ull << 40)),
            "byte 16: the metadata count is 1099511627776; at most 65536 are read");
}

TEST(GgufTest, RefusesDuplicates) {
  GgufBuilder keys;
  keys.U32("k", 1).Repeat("k", static_cast<uint32_t>(GgufType::kBool), std::string(1, '\0'));
  EXPECT_EQ(Refusal(keys.Build()), "byte 41: the metadata key \"k\" is there twice");
  GgufBuilder names;
  names.Tensor("t", TensorType::kF32, {1}).Tensor("t", TensorType::kF32, {1});
  EXPECT_THAT(Refusal(names.Build()), EndsWith(": the tensor \"t\" is there twice"));
}

TEST(GgufTest, RefusesNamesWithoutOrBeyondLength) {
  EXPECT_EQ(Refusal(GgufBuilder().U32("", 1).Build()),
            "byte 24: a metadata key has 0 bytes; it must have 1 to 65535");
  EXPECT_EQ(Refusal(GgufBuilder().Tensor(std::string(65, 'n'), TensorType::kF32, {1}).Build()),
            "byte 24: a tensor name has 65 bytes; it must have 1 to 64");
  EXPECT_EQ(Refusal(GgufBuilder().Tensor(std::string(64, 'n'), TensorType::kF32, {1}).Build()), "");
}

TEST(GgufTest, RefusesUnknownValueTypesAndNestedArrays) {
  EXPECT_EQ(Refusal(GgufBuilder().Raw("k", 13, "0123").Build()),
            "byte 33: the type of \"k\" is 13, which is no GGUF value type (0 to 12)");
  std::string nested;
  GgufBuilder::Append<uint32_t>(nested, 9);
  GgufBuilder::Append<uint64_t>(nested, 0);
  EXPECT_EQ(Refusal(GgufBuilder().Raw("k", 9, nested).Build()),
            "byte 37: the value of \"k\" is an array of arrays, which is not read");
  EXPECT_EQ(Refusal(GgufBuilder().Bool("k", 2).Build()),
            "byte 37: the value of \"k\" is a bool of 2; it must be 0 or 1");
}

TEST(GgufTest, RefusesStringsAndArraysPastTheEnd) {
  std::string payload;
  GgufBuilder::Append<uint64_t>(payload, ~0ull);
  EXPECT_EQ(
      Refusal(GgufBuilder().Raw("k", 8, payload).Build()),
      "byte 45: the file ends within the value of \"k\" (18446744073709551615 bytes, 0 left)");
  std::string numbers;
  GgufBuilder::Append<uint32_t>(numbers, 10);
  GgufBuilder::Append<uint64_t>(numbers, 1ull << 61);  // × 8 wraps to 0
  EXPECT_EQ(
      Refusal(GgufBuilder().Raw("k", 9, numbers).Build()),
      "byte 49: the value of \"k\" has 2305843009213693952 elements of 8 bytes; 0 bytes are left");
  std::string strings;
  GgufBuilder::Append<uint32_t>(strings, 8);
  GgufBuilder::Append<uint64_t>(strings, 1ull << 40);
  EXPECT_THAT(Refusal(GgufBuilder().Raw("k", 9, strings).Build()),
              HasSubstr("has 1099511627776 strings; 0 bytes are left"));
  strings.clear();
  GgufBuilder::Append<uint32_t>(strings, 8);
  GgufBuilder::Append<uint64_t>(strings, 2);
  GgufBuilder::AppendString(strings, "fine");
  GgufBuilder::Append<uint64_t>(strings, 5);
  EXPECT_EQ(Refusal(GgufBuilder().Raw("k", 9, strings).Build()),
            "byte 61: the file ends within string 1 of the value of \"k\"");
}

TEST(GgufTest, RefusesAlignmentsThatAreNone) {
  for (uint32_t alignment : {0u, 1u, 4u, 48u, 1u << 21}) {
    EXPECT_EQ(Refusal(GgufBuilder().U32("general.alignment", alignment).Build()),
              "byte 53: general.alignment is " + std::to_string(alignment) +
                  "; it must be a power of two from 8 to 1048576");
  }
}

TEST(GgufTest, RefusesShapesThatAreNone) {
  const auto refusal = [](const std::vector<uint64_t>& dims) {
    return Refusal(GgufBuilder().TensorOf("t", 0, dims, std::string(64, '\0')).Build());
  };
  EXPECT_EQ(refusal({}), "byte 33: the tensor \"t\" has 0 dimensions; it must have 1 to 4");
  EXPECT_EQ(refusal({1, 1, 1, 1, 1}),
            "byte 33: the tensor \"t\" has 5 dimensions; it must have 1 to 4");
  EXPECT_THAT(refusal({0}), HasSubstr("has dimension 0 of 0; dimensions must be at least 1"));
  EXPECT_THAT(refusal({4, 0}), HasSubstr("has dimension 1 of 0; dimensions must be at least 1"));
  EXPECT_THAT(refusal({1ull << 32, 1ull << 32}), HasSubstr("their product at most 2^60"));
  EXPECT_THAT(refusal({3, ~0ull}), HasSubstr("their product at most 2^60"));
  EXPECT_THAT(refusal({1ull << 60}), HasSubstr("the file ends within the tensor \"t\""));
}

TEST(GgufTest, RefusesTensorTypesItDoesNotRead) {
  for (uint32_t type : {4u, 5u, 9u, 10u, 20u, 31u, 1000u}) {
    EXPECT_EQ(Refusal(GgufBuilder().TensorOf("t", type, {32}, std::string(64, '\0')).Build()),
              "byte 45: the tensor \"t\" has type number " + std::to_string(type) +
                  "; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K are read");
  }
}

TEST(GgufTest, RefusesRowsThatEndWithinABlock) {
  EXPECT_THAT(Refusal(GgufBuilder().TensorOf("t", 3, {33}, std::string(64, '\0')).Build()),
              EndsWith("has rows of 33 elements; Q4_1 needs a multiple of 32"));
  EXPECT_THAT(Refusal(GgufBuilder().TensorOf("t", 14, {128}, std::string(210, '\0')).Build()),
              EndsWith("has rows of 128 elements; Q6_K needs a multiple of 256"));
}

TEST(GgufTest, RefusesTensorsOutOfPlace) {
  const std::string data(64, '\0');
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("t", 0, {8}, 8, data).Build()),
              EndsWith("has offset 8, which is no multiple of the alignment 32"));
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("t", 0, {17}, 0, data).Build()),
              HasSubstr("the file ends within the tensor \"t\" (68 bytes at 0 of the data section, "
                        "which has 64)"));
  EXPECT_THAT(Refusal(GgufBuilder().TensorAt("t", 0, {1}, ~0ull - 31, data).Build()),
              HasSubstr("the file ends within the tensor \"t\""));
  EXPECT_EQ(Refusal(GgufBuilder().TensorAt("t", 0, {16}, 0, data).Build()), "");
}

TEST(GgufTest, RefusesTensorsThatOverlap) {
  GgufBuilder builder;
  builder.TensorAt("late", 0, {8}, 32, std::string(64, '\0')).TensorAt("early", 0, {9}, 0, "");
  EXPECT_THAT(Refusal(builder.Build()), EndsWith("the tensors \"early\" and \"late\" overlap"));
}

TEST(GgufTest, QuotesNamesSafely) {
  GgufBuilder builder;
  const std::string key = "bad\n\x1b[31m" + std::string(200, 'x');
  builder.Raw(key, 99, "");
  const std::string refusal = Refusal(builder.Build());
  EXPECT_THAT(refusal, HasSubstr("\"bad\\n\\x1b[31mxxx"));
  EXPECT_LT(refusal.size(), 250u);
}

class GgufFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/gguf_test_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& bytes) const {
    const std::string path = (folder_ / "model.gguf").string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(GgufFileTest, OpensAFileByMappingIt) {
  const std::string bytes = SmallLlama().Build();
  const auto mapped = GgufFile::Open(Write(bytes));
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto parsed = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*mapped)->file_bytes(), bytes.size());
  EXPECT_EQ((*mapped)->Fingerprint(), (*parsed)->Fingerprint());
  EXPECT_EQ((*mapped)->FindTensor("blk.0.ffn_down.weight")->data[1],
            (*parsed)->FindTensor("blk.0.ffn_down.weight")->data[1]);
}

TEST_F(GgufFileTest, NamesThePathWhenAFileCannotBeOpened) {
  const std::string absent = (folder_ / "absent.gguf").string();
  const auto missing = GgufFile::Open(absent);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(absent));
  const auto folder = GgufFile::Open(folder_.string());
  EXPECT_THAT(std::string(folder.status().message()), EndsWith("is not a regular file"));
  const auto empty = GgufFile::Open(Write(""));
  EXPECT_THAT(std::string(empty.status().message()), EndsWith("model.gguf is empty"));
  const auto malformed = GgufFile::Open(Write("GGUF"));
  EXPECT_THAT(std::string(malformed.status().message()),
              EndsWith("model.gguf: byte 4: the file ends within the version (4 bytes, 0 left)"));
}

TEST(GgufTest, FingerprintTellsHeadersSizesAndWeightsApart) {
  const auto fingerprint = [](const std::string& bytes) {
    return (*GgufFile::Parse(BytesOf(bytes)))->Fingerprint();
  };
  const std::string bytes = SmallLlama().Build();
  const uint64_t original = fingerprint(bytes);
  EXPECT_EQ(original, fingerprint(std::string(bytes)));
  EXPECT_NE(original, fingerprint(SmallLlama().U32("llama.context_length", 129).Build()));
  EXPECT_NE(original, fingerprint(bytes + std::string(1, '\0')));
  std::string tuned = bytes;
  const auto file = GgufFile::Parse(BytesOf(bytes));
  const std::span<const uint8_t> weights = (*file)->FindTensor("token_embd.weight")->data;
  tuned[weights.data() - BytesOf(bytes).data() + weights.size() / 2] ^= 1;
  EXPECT_NE(original, fingerprint(tuned));
}

}  // namespace
}  // namespace octavo
