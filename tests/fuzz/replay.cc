// Runs a fuzz target once over every file of a folder, where there is no libFuzzer: so that each
// finding that became a seed stays found in the ordinary test run.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  size_t seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(in), {});
    std::printf("%s\n", entry.path().c_str());
    std::fflush(stdout);  // a crash names its seed
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++seeds;
  }
  std::printf("%zu seeds ran\n", seeds);
  return seeds > 0 ? 0 : 1;
}
