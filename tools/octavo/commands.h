#pragma once

// The subcommands of `octavo`. Each takes the positional arguments after its name (flags are parsed
// already) and returns the exit code: 0 done, 1 the server said no (the error is on stderr), 2 a
// bad command line.

#include <string>
#include <vector>

namespace octavo::cli {

int Serve(const std::vector<std::string>& arguments);
int Generate(const std::vector<std::string>& arguments);
int Chat(const std::vector<std::string>& arguments);
int Top(const std::vector<std::string>& arguments);

}  // namespace octavo::cli
