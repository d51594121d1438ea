#pragma once

// `octavo capacity`: what a KV pool would hold, offline. Two questions: how many requests of given
// lengths each KV policy admits (--lengths or --trace), and what a model leaves room for on given
// devices (--model or --config); with both, the first is asked of the second's pool.

#include <string>
#include <vector>

namespace octavo::cli {

extern const char kCapacityAbout[];

// Exit code 0; 1 where nothing fits; 2 for a bad command line.
int ShowCapacity(const std::vector<std::string>& arguments);

}  // namespace octavo::cli
