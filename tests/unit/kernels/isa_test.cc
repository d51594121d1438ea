#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace octavo::kernels {
namespace {

TEST(IsaTest, SupportedSetsAscendFromScalarToTheDetectedOne) {
  const auto isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kScalar);
  EXPECT_EQ(isas.back(), DetectIsa());
  for (size_t i = 1; i < isas.size(); ++i) EXPECT_LT(isas[i - 1], isas[i]);
}

TEST(IsaTest, Avx2IsFoundWhereTheKernelReportsIt) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line, flags;
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("flags")) {
      flags = line + " ";
      break;
    }
  }
  ASSERT_FALSE(flags.empty()) << "no flags line in /proc/cpuinfo";
  const bool reported = flags.find(" avx2 ") != std::string::npos &&
                        flags.find(" fma ") != std::string::npos &&
                        flags.find(" f16c ") != std::string::npos;
  EXPECT_EQ(DetectIsa() >= Isa::kAvx2, reported);
}

TEST(IsaTest, NamesAreDistinct) {
  EXPECT_STREQ(IsaName(Isa::kScalar), "scalar");
  EXPECT_STREQ(IsaName(Isa::kAvx2), "avx2");
}

}  // namespace
}  // namespace octavo::kernels
