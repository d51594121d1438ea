#pragma once

// Reads golden files (the format is in tools/reference/golden_file.py): named arrays of u8, i32 or
// f32 behind a text header. In comes a path; out come vectors with their shapes. A golden that is
// missing or damaged is our own fault and ends the test (CHECK).

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "glog/logging.h"

namespace octavo {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    CHECK(in.good()) << path << " cannot be read";
    std::string line;
    std::getline(in, line);
    CHECK_EQ(line, "octavo-golden 1") << path;
    std::vector<std::string> names;
    while (std::getline(in, line) && !line.empty()) {
      std::istringstream words(line);
      std::string name;
      Array array;
      words >> name >> array.type;
      array.shape.assign(std::istream_iterator<size_t>(words), {});
      names.push_back(name);
      arrays_[name] = array;
    }
    for (const std::string& name : names) {
      Array& array = arrays_[name];
      size_t size = array.type == "u8" ? 1 : 4;
      for (size_t dim : array.shape) size *= dim;
      array.bytes.resize(size);
      CHECK(in.read(array.bytes.data(), static_cast<std::streamsize>(size)))
          << path << ": " << name;
    }
  }

  bool Has(const std::string& name) const { return arrays_.contains(name); }
  const std::vector<size_t>& Shape(const std::string& name) const { return arrays_.at(name).shape; }
  std::vector<uint8_t> U8(const std::string& name) const { return Values<uint8_t>(name, "u8"); }
  std::vector<int32_t> I32(const std::string& name) const { return Values<int32_t>(name, "i32"); }
  std::vector<float> F32(const std::string& name) const { return Values<float>(name, "f32"); }

 private:
  struct Array {
    std::string type;
    std::vector<size_t> shape;  // row-major
    std::string bytes;
  };

  template <typename T>
  std::vector<T> Values(const std::string& name, const std::string& type) const {
    CHECK(Has(name)) << "no golden array " << name;
    const Array& array = arrays_.at(name);
    CHECK_EQ(array.type, type) << name;
    std::vector<T> values(array.bytes.size() / sizeof(T));
    std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
    return values;
  }

  std::map<std::string, Array> arrays_;
};

}  // namespace octavo
