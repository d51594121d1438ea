#include "common/model/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/common/model/small_vocabulary.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Merges = std::vector<std::pair<std::string, std::string>>;

struct Bpe {
  Vocabulary vocabulary;
  BpeMerges merges;

  std::vector<TokenId> Encode(absl::string_view word) const {
    BpeScratch scratch;
    std::vector<TokenId> ids;
    merges.Encode(word, scratch, ids);
    return ids;
  }
};

Bpe MakeBpe(const Merges& merges) {
  const TokenizerSpec spec = SmallSpec(merges);
  Vocabulary vocabulary = Vocabulary::Create(spec.tokens, spec.types).value();
  BpeMerges bpe = BpeMerges::Create(vocabulary, spec.merges).value();
  return {std::move(vocabulary), std::move(bpe)};
}

// The definition, as slow as it reads: the best merge anywhere, again and again.
std::vector<std::string> EncodeByDefinition(const Merges& merges, const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] == std::pair(parts[i], parts[i + 1])) best_rank = rank, best_at = i;
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(BpeTest, TheMergeLearnedFirstGoesFirst) {
  EXPECT_THAT(MakeBpe({{"b", "c"}, {"a", "b"}}).Encode("abc"), ElementsAre('a', 256));
  EXPECT_THAT(MakeBpe({{"a", "b"}, {"b", "c"}}).Encode("abc"), ElementsAre(256, 'c'));
}

TEST(BpeTest, OfEqualMergesTheLeftmostGoesFirst) {
  EXPECT_THAT(MakeBpe({{"a", "a"}}).Encode("aaaaa"), ElementsAre(256, 256, 'a'));
}

TEST(BpeTest, AMergeMadePossibleByAnotherIsFound) {
  EXPECT_THAT(MakeBpe({{"a", "b"}, {"ab", "c"}, {"x", "abc"}}).Encode("xabcab"),
              ElementsAre(258, 256));
}

TEST(BpeTest, AWordWithoutMergesIsItsBytes) {
  EXPECT_THAT(MakeBpe({}).Encode("h\xC3\xA9"), ElementsAre('h', 0xC3, 0xA9));
  EXPECT_THAT(MakeBpe({}).Encode(""), IsEmpty());
}

TEST(BpeTest, AByteWithoutATokenIsDroppedBeforeItsNeighboursMerge) {
  TokenizerSpec spec = SmallSpec({{"a", "b"}});
  spec.types['#'] = TokenType::kUnused;
  const Vocabulary vocabulary = Vocabulary::Create(spec.tokens, spec.types).value();
  const BpeMerges merges = BpeMerges::Create(vocabulary, spec.merges).value();
  BpeScratch scratch;
  std::vector<TokenId> ids;
  merges.Encode("#a#b#", scratch, ids);
  EXPECT_THAT(ids, ElementsAre(256));
}

TEST(BpeTest, RandomMergesAndWordsGiveWhatTheDefinitionGives) {
  std::mt19937 random(20240611);
  const auto draw = [&](size_t count) { return random() % count; };
  for (int round = 0; round < 300; ++round) {
    Merges merges;
    std::vector<std::string> parts = {"a", "b", "c"};
    std::map<std::string, TokenId> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    for (size_t tries = 0; tries < 25; ++tries) {
      const std::string left = parts[draw(parts.size())], right = parts[draw(parts.size())];
      if (left.size() + right.size() > 8 || ids.contains(left + right)) continue;
      ids[left + right] = static_cast<TokenId>(256 + merges.size());
      merges.emplace_back(left, right);
      parts.push_back(left + right);
    }
    const Bpe bpe = MakeBpe(merges);
    for (int words = 0; words < 20; ++words) {
      std::string word;
      for (size_t length = draw(40); length > 0; --length) word += "abc"[draw(3)];
      std::vector<TokenId> expected;
      for (const std::string& part : EncodeByDefinition(merges, word)) {
        expected.push_back(ids.at(part));
      }
      ASSERT_EQ(bpe.Encode(word), expected) << "round " << round << ", word " << word;
    }
  }
}

TEST(BpeTest, ATokenIsWholeIfItsOwnBytesEncodeToIt) {
  // "abc" is a token, but "bc" is merged first and then nothing leads there.
  const Bpe bpe = MakeBpe({{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_TRUE(bpe.merges.IsWhole('a'));
  EXPECT_TRUE(bpe.merges.IsWhole(256));
  EXPECT_FALSE(bpe.merges.IsWhole(258));
}

TEST(BpeTest, WorkGrowsWithTheWordAndNotWithItsSquare) {
  const Bpe bpe = MakeBpe({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}, {"b", "a"}, {"a", "b"}});
  const auto pops = [&](size_t length, const std::string& unit) {
    std::string word;
    while (word.size() < length) word += unit;
    BpeScratch scratch;
    std::vector<TokenId> ids;
    bpe.merges.Encode(word, scratch, ids);
    return scratch.heap_pops;
  };
  for (const char* unit : {"a", "ab", "aab"}) {
    const uint64_t small = pops(64 << 10, unit), large = pops(1 << 20, unit);
    EXPECT_GE(small, (64u << 10) / 4) << unit;
    EXPECT_LE(large, 17 * small) << unit;
    EXPECT_LE(large, uint64_t{3} << 20) << unit;
  }
}

TEST(BpeTest, AMergeThatIsNotThreeTokensIsRefusedByName) {
  TokenizerSpec spec = SmallSpec({{"a", "b"}});
  const Vocabulary vocabulary = Vocabulary::Create(spec.tokens, spec.types).value();
  const auto message = [&](const std::string& merge) {
    const auto merges = BpeMerges::Create(vocabulary, {"a b", merge});
    EXPECT_EQ(merges.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(merges.status().message());
  };
  EXPECT_EQ(message("ab"), "merge 1 is \"ab\": it must be two tokens parted by one space");
  EXPECT_THAT(message("a b c"), HasSubstr("parted by one space"));
  EXPECT_THAT(message("a c"), HasSubstr("must be normal tokens of the vocabulary"));
  EXPECT_THAT(message("zz a"), HasSubstr("merge 1"));
  EXPECT_THAT(message(" "), HasSubstr("must be normal tokens"));
}

}  // namespace
}  // namespace octavo
